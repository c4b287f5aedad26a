package vm

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrNoLibrary says that a shared library of a program was not found.
var ErrNoLibrary = errors.New("shared library not found")

// addProgram adds a host program under the name to, with the dynamic loader and its shared libraries, at their
// places on the host.
func addProgram(a *archive, host, to string) error {
	a.file(to, host)
	done := map[string]bool{}
	return addLibraries(a, host, done)
}

// addNeeded adds the libraries that these libraries, or all in these folders, need.
func addNeeded(a *archive, of []string) error {
	done := map[string]bool{}
	for _, place := range of {
		err := filepath.WalkDir(place, func(file string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			return addLibraries(a, file, done)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func addLibraries(a *archive, file string, done map[string]bool) error {
	f, err := elf.Open(file)
	if err != nil {
		var format *elf.FormatError
		if errors.As(err, &format) { // a script
			return nil
		}
		return fmt.Errorf("add program to initramfs: %w", err)
	}
	defer f.Close() //nolint:errcheck // opened for reading
	needs, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("libraries of %s: %w", file, err)
	}
	if loader := interpreter(f); loader != "" && !done[loader] {
		done[loader] = true
		a.file(loader, loader)
	}
	for _, name := range needs {
		if done[name] {
			continue
		}
		done[name] = true
		found, err := findLibrary(name)
		if err != nil {
			return fmt.Errorf("libraries of %s: %w", file, err)
		}
		a.file(filepath.Join("/lib/x86_64-linux-gnu", name), found)
		if err := addLibraries(a, found, done); err != nil {
			return err
		}
	}
	return nil
}

func interpreter(f *elf.File) string {
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		text := make([]byte, p.Filesz)
		if _, err := p.ReadAt(text, 0); err != nil || len(text) == 0 {
			return ""
		}
		return string(text[:len(text)-1]) // without its NUL
	}
	return ""
}

func findLibrary(name string) (string, error) {
	for _, dir := range []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"} {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("%w: %s", ErrNoLibrary, name)
}
