// Command vmrun runs a static program on one of Debian's stock kernels under
// emulation and ends with the program's exit status:
//
//	go run ./internal/testutil/vm/cmd/vmrun [FLAGS] -- PROGRAM [ARGS...]
//	go run ./internal/testutil/vm/cmd/vmrun [FLAGS] -test PACKAGE [-- TEST FLAGS...]
//
// The second form compiles the package's tests and runs them in the guest, as
// root. Exit statuses of vmrun's own: 125 the guest failed, 2 wrong usage. ("go
// run" turns every status but 0 into 1: build vmrun where it matters.)
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testutil/vm"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	status := run(ctx, os.Args[1:])
	stop()
	os.Exit(status)
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string { return strings.Join(*l, " ") }

func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

func run(ctx context.Context, args []string) int {
	c := vm.Config{Stdout: os.Stdout, Stderr: os.Stderr}
	var files, programs, env, modules, fetch list
	flags := flag.NewFlagSet("vmrun", flag.ContinueOnError)
	flags.StringVar(&c.Kernel, "kernel", "", "Debian's kernel series (6.1, 6.12) or a .deb or image `file` (default 6.1, or $NETNICE_VM_KERNEL)")
	flags.StringVar(&c.Append, "append", "", "add to the kernel's command line")
	flags.StringVar(&c.Cgroup, "cgroup", "", "cgroup `layout`: v2, hybrid, v1, none (default v2)")
	flags.BoolVar(&c.NoBPFFS, "no-bpffs", false, "leave /sys/fs/bpf unmounted")
	flags.StringVar(&c.Dir, "C", "", "working `folder` in the guest (default /root)")
	flags.IntVar(&c.CPUs, "cpus", 1, "processors of the guest")
	flags.IntVar(&c.MemoryMiB, "mem", 1024, "memory of the guest, `MiB`")
	flags.DurationVar(&c.Timeout, "timeout", 5*time.Minute, "time for the program")
	flags.Var(&files, "file", "put `HOST[:GUEST]`, a file or folder, into the guest")
	flags.Var(&programs, "with", "put a host `program` and its libraries into the guest's /bin")
	flags.Var(&env, "env", "set `NAME=VALUE` in the guest")
	flags.Var(&modules, "module", "load a kernel `module` besides the usual ones")
	flags.Var(&fetch, "fetch", "bring guest file `GUEST[:HOST]` back at the end")
	test := flags.String("test", "", "compile the tests of a `package` and run those")
	console := flags.Bool("console", false, "print the kernel's console at the end")
	quiet := flags.Bool("q", false, "no summary on standard error")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	rest := flags.Args()
	temp, err := os.MkdirTemp("", "vmrun-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(temp) //nolint:errcheck // a left-over in the temporary folder harms nobody
	switch {
	case *test != "":
		if c.Program, err = vm.CompileTest(ctx, *test, temp); err != nil {
			return fail(err)
		}
		c.Args = append([]string{"-test.v"}, rest...)
	case len(rest) > 0:
		c.Program, c.Args = rest[0], rest[1:]
	default:
		flags.Usage()
		return 2
	}
	c.Env, c.Modules, c.Programs = env, modules, programs
	c.Files = map[string]string{}
	for _, f := range files {
		host, guest, found := strings.Cut(f, ":")
		if !found {
			guest = path.Join("/root", filepath.Base(host))
		}
		c.Files[guest] = host
	}
	back := map[string]string{}
	for _, f := range fetch {
		guest, host, found := strings.Cut(f, ":")
		if !found {
			host = path.Base(guest)
		}
		back[guest] = host
		c.Fetch = append(c.Fetch, guest)
	}
	if *console {
		c.Console = os.Stderr
	}

	res, err := vm.Run(ctx, c)
	if res != nil && !*quiet {
		summary(res)
	}
	if err != nil {
		return fail(err)
	}
	for guest, data := range res.Files {
		if err := os.WriteFile(back[guest], data, 0o644); err != nil {
			return fail(err)
		}
	}
	return res.ExitCode
}

func summary(res *vm.Result) {
	for _, n := range res.Notes {
		fmt.Fprintln(os.Stderr, "vmrun: note:", n)
	}
	fmt.Fprintf(os.Stderr, "vmrun: %s, boot %.1f s, ran %.1f s, exit status %d\n",
		res.Kernel, res.Boot.Seconds(), res.Ran.Seconds(), res.ExitCode)
}

func fail(err error) int {
	if errors.Is(err, vm.ErrNoKernel) {
		err = fmt.Errorf("%w\n  run: apt-get update", err)
	}
	fmt.Fprintln(os.Stderr, "vmrun:", err)
	return 125
}
