package vm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sort"

	"github.com/netnice/netnice/internal/testutil/vm/wire"
)

// initPackage is the program that runs first in the guest.
const initPackage = "github.com/netnice/netnice/internal/testutil/vm/cmd/vminit"

// buildImage writes the guest's file system to the file image; temp is a folder for intermediate files. It returns
// notes on the files that it could not include.
func buildImage(ctx context.Context, c Config, kernel *Kernel, temp, image string) (notes []string, err error) {
	initProgram := filepath.Join(temp, "init")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", initProgram, initPackage)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build init: %w\n%s", err, out)
	}
	modules, missing, err := kernel.moduleFiles(ctx, append(DefaultModules(), c.Modules...))
	if err != nil {
		return nil, err
	}
	for _, m := range missing {
		notes = append(notes, "no module "+m+" in "+kernel.Package)
	}

	f, err := os.Create(image)
	if err != nil {
		return nil, fmt.Errorf("write initramfs: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buffered := bufio.NewWriterSize(f, 1<<20)
	a := newArchive(buffered)
	addBase(a)
	a.file("init", initProgram)

	job := wire.Job{
		Argv:    append([]string{path.Join("/bin", c.Name)}, c.Args...),
		Env:     c.Env,
		Dir:     c.Dir,
		Cgroup:  c.Cgroup,
		NoBPFFS: c.NoBPFFS,
		Fetch:   c.Fetch,
		Seconds: int(c.Timeout.Seconds()),
	}
	for _, m := range modules {
		name := path.Join("/lib/modules", m.name+".ko")
		a.data(name, 0o644, m.data)
		job.Modules = append(job.Modules, name)
	}
	if err := addProgram(a, c.Program, job.Argv[0]); err != nil {
		return nil, err
	}
	for _, p := range c.Programs {
		host, err := exec.LookPath(p)
		if err != nil {
			return nil, fmt.Errorf("add program to initramfs: %w (make test-vm installs what it needs)", err)
		}
		if err := addProgram(a, host, path.Join("/bin", filepath.Base(host))); err != nil {
			return nil, err
		}
	}
	if err := addNeeded(a, c.Libraries); err != nil {
		return nil, err
	}
	for _, to := range sortedKeys(c.Files) {
		a.tree(to, c.Files[to])
	}
	a.dir(c.Dir)
	text, err := json.Marshal(job)
	if err != nil {
		return nil, fmt.Errorf("encode job: %w", err)
	}
	a.data(wire.JobPath, 0o644, text)
	return notes, errors.Join(a.close(), buffered.Flush())
}

// addBase adds the folders and the few files that programs expect anywhere.
func addBase(a *archive) {
	for _, d := range []string{"bin", "dev", "etc", "lib", "proc", "root", "run", "sys", "tmp", "usr", "var/lib", "var/log", "home/alice", "home/bob"} {
		a.dir(d)
	}
	a.symlink("sbin", "bin")
	a.symlink("usr/bin", "../bin")
	a.symlink("usr/sbin", "../bin")
	a.symlink("var/run", "../run")
	a.char("dev/console", 0o600, 5, 1)
	a.char("dev/null", 0o666, 1, 3)
	a.data("etc/passwd", 0o644, []byte(
		"root:x:0:0:root:/root:/bin/sh\n"+
			"alice:x:1000:1000::/home/alice:/bin/sh\n"+
			"bob:x:1001:1001::/home/bob:/bin/sh\n"+
			"nobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n"))
	a.data("etc/group", 0o644, []byte("root:x:0:\nalice:x:1000:\nbob:x:1001:\nnogroup:x:65534:\n"))
	a.data("etc/hosts", 0o644, []byte("127.0.0.1 localhost\n::1 localhost\n"))
	a.data("etc/os-release", 0o644, []byte("ID=netnice-vm\nPRETTY_NAME=\"netnice test machine\"\n"))
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
