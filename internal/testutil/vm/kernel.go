package vm

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// Kernel is a Debian kernel package, unpacked.
type Kernel struct {
	Package string // name and version of the package
	Image   string // path of the bootable image
	modules map[string]string
}

// ErrNoKernel says that the package of a kernel cannot be had.
var ErrNoKernel = errors.New("kernel package not available")

// metaPackage names the Debian package that depends on the newest kernel of a
// series.
func metaPackage(series string) string {
	if series == "6.1" { // Debian 12's own
		return "linux-image-amd64"
	}
	return "linux-image-" + series + "-amd64"
}

// FetchKernel returns a kernel. want is a series of Debian's ("6.1", "6.12"), the path of a package file (.deb), or
// that of a bootable image without modules. FetchKernel downloads a package with apt-get, without installing it, and
// keeps it in a folder below cache. If a copy exists already, it does not ask apt.
func FetchKernel(ctx context.Context, want, cache string) (*Kernel, error) {
	if strings.Contains(want, "/") && !strings.HasSuffix(want, ".deb") {
		return ownKernel(want)
	}
	folder := filepath.Join(cache, strings.TrimSuffix(filepath.Base(want), ".deb"))
	if k, err := openKernel(folder); err == nil {
		return k, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, fmt.Errorf("make kernel cache: %w", err)
	}
	temp, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return nil, fmt.Errorf("make kernel cache: %w", err)
	}
	defer os.RemoveAll(temp) //nolint:errcheck // a left-over in the cache harms nobody

	deb := want
	if !strings.HasSuffix(want, ".deb") {
		if deb, err = download(ctx, metaPackage(want), temp); err != nil {
			return nil, err
		}
	}
	unpacked := filepath.Join(temp, "kernel")
	if err := unpack(ctx, deb, unpacked); err != nil {
		return nil, err
	}
	note := strings.TrimSuffix(filepath.Base(deb), ".deb")
	if err := os.WriteFile(filepath.Join(unpacked, "package"), []byte(note), 0o644); err != nil {
		return nil, fmt.Errorf("note the kernel's package: %w", err)
	}
	// Two runs may race here; the first one wins and the other uses its copy.
	if err := os.Rename(unpacked, folder); err != nil {
		if k, openErr := openKernel(folder); openErr == nil {
			return k, nil
		}
		return nil, fmt.Errorf("keep kernel: %w", err)
	}
	return openKernel(folder)
}

// ownKernel returns an image that the user built, without modules.
func ownKernel(image string) (*Kernel, error) {
	if _, err := os.Stat(image); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoKernel, err)
	}
	return &Kernel{Package: filepath.Base(image), Image: image}, nil
}

func openKernel(folder string) (*Kernel, error) {
	note, err := os.ReadFile(filepath.Join(folder, "package"))
	if err != nil {
		return nil, fmt.Errorf("open kernel: %w", err)
	}
	k := &Kernel{
		Package: string(note),
		Image:   filepath.Join(folder, "vmlinuz"),
		modules: map[string]string{},
	}
	entries, err := os.ReadDir(filepath.Join(folder, "modules"))
	if err != nil {
		return nil, fmt.Errorf("open kernel: %w", err)
	}
	for _, e := range entries {
		name, _, _ := strings.Cut(e.Name(), ".")
		k.modules[moduleName(name)] = filepath.Join(folder, "modules", e.Name())
	}
	return k, nil
}

// moduleName maps both spellings of a module's name to one.
func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// download fetches the kernel that meta depends on into dir.
func download(ctx context.Context, meta, dir string) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-cache", "depends", "--important", meta).Output()
	if err != nil {
		return "", fmt.Errorf("%w: apt-cache depends %s: %w (is the package list there? apt-get update)", ErrNoKernel, meta, err)
	}
	name := ""
	for line := range strings.Lines(string(out)) {
		if dep, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: linux-image-"); ok {
			name = "linux-image-" + dep
		}
	}
	if name == "" {
		return "", fmt.Errorf("%w: %s depends on no kernel", ErrNoKernel, meta)
	}
	get := exec.CommandContext(ctx, "apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", name)
	get.Dir = dir
	if out, err := get.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: apt-get download %s: %w\n%s", ErrNoKernel, name, err, out)
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%w: apt-get download %s left %d files", ErrNoKernel, name, len(found))
	}
	return found[0], nil
}

// unpack takes the image and the network modules out of a kernel package.
func unpack(ctx context.Context, deb, dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "modules"), 0o755); err != nil {
		return fmt.Errorf("unpack kernel: %w", err)
	}
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	stream, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("unpack kernel: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("unpack kernel: %w", err)
	}
	unpackErr := unpackTar(tar.NewReader(stream), dir)
	_, _ = io.Copy(io.Discard, stream)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("unpack %s: %w: %s", deb, err, complaint.String())
	}
	if unpackErr != nil {
		return fmt.Errorf("unpack %s: %w", deb, unpackErr)
	}
	return nil
}

func unpackTar(archive *tar.Reader, dir string) error {
	for {
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		to := destination(entry)
		if to == "" {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, to), os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		_, copyErr := io.Copy(f, archive)
		if err := errors.Join(copyErr, f.Close()); err != nil {
			return err
		}
	}
}

// destination returns the path at which to keep an entry of the package, "" for most of them.
func destination(entry *tar.Header) string {
	if entry.Typeflag != tar.TypeReg {
		return ""
	}
	name := path.Clean(entry.Name)
	base := path.Base(name)
	switch {
	case strings.HasPrefix(name, "boot/vmlinuz"):
		return "vmlinuz"
	case strings.HasPrefix(name, "boot/config"):
		return "config"
	case !strings.Contains(base, ".ko"):
		return ""
	}
	_, inside, found := strings.Cut(name, "/kernel/")
	if !found {
		return ""
	}
	for _, wanted := range []string{"net/", "lib/", "crypto/", "arch/x86/crypto/"} {
		if strings.HasPrefix(inside, wanted) {
			return path.Join("modules", base)
		}
	}
	switch path.Dir(inside) {
	case "drivers/net", "drivers/net/bonding", "drivers/net/wireguard", "drivers/net/ppp", "drivers/net/slip":
		return path.Join("modules", base)
	}
	return ""
}

// moduleFiles returns the contents of the named modules and of their dependencies, in load order. missing holds the
// names that the package does not have as a module (built in, or unknown to this kernel).
func (k *Kernel) moduleFiles(ctx context.Context, names []string) (order []moduleFile, missing []string, err error) {
	done := map[string]bool{}
	var visit func(name string) error
	visit = func(name string) error {
		name = moduleName(name)
		if done[name] {
			return nil
		}
		done[name] = true
		file, ok := k.modules[name]
		if !ok {
			missing = append(missing, name)
			return nil
		}
		data, err := readModule(ctx, file)
		if err != nil {
			return err
		}
		needs, err := moduleDepends(data)
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		for _, n := range needs {
			if err := visit(n); err != nil {
				return err
			}
		}
		order = append(order, moduleFile{name: name, data: data})
		return nil
	}
	for _, n := range names {
		if err := visit(n); err != nil {
			return nil, nil, err
		}
	}
	return order, missing, nil
}

type moduleFile struct {
	name string
	data []byte
}

func readModule(ctx context.Context, file string) ([]byte, error) {
	switch {
	case strings.HasSuffix(file, ".ko"):
		return os.ReadFile(file)
	case strings.HasSuffix(file, ".ko.xz"):
		return decompress(ctx, "xz", file)
	case strings.HasSuffix(file, ".ko.zst"):
		return decompress(ctx, "zstd", file)
	}
	return nil, fmt.Errorf("module %s: unknown compression", file)
}

func decompress(ctx context.Context, tool, file string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, tool, "-dc", file).Output()
	if err != nil {
		return nil, fmt.Errorf("%s -dc %s: %w", tool, file, err)
	}
	return out, nil
}

// moduleDepends reads the dependencies of a module from its own header.
func moduleDepends(module []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, errors.New("no .modinfo section")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for _, field := range bytes.Split(info, []byte{0}) {
		if list, ok := bytes.CutPrefix(field, []byte("depends=")); ok && len(list) > 0 {
			return strings.Split(string(list), ","), nil
		}
	}
	return nil, nil
}
