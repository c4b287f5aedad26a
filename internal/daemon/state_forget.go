package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/adaptation"
	"github.com/netnice/netnice/internal/cpushare"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/source/prefixlists"
	"github.com/netnice/netnice/internal/statefile"
)

// limitFiles are removed with the last limit. stateFiles, which include the settings for the whole machine, are removed
// by netnice down.
var (
	limitFiles = []string{desired.FileName, cpushare.FileName, adaptation.FileName}
	stateFiles = []string{desired.FileName, cpushare.FileName, adaptation.FileName, systemName}
)

// forget removes files of the state. The caller holds d.mu.
func (d *Daemon) forget(names ...string) error {
	d.file.Forget()
	return forgetFiles(d.opts.StateDir, names, d.files.Remove)
}

// ForgetState removes the state of a daemon where none runs. With keepPowers the file of CPU shares stays.
func ForgetState(dir string, keepPowers bool) error {
	names := slices.Clone(stateFiles)
	if keepPowers {
		names = slices.DeleteFunc(names, func(name string) bool { return name == cpushare.FileName })
	}
	names = append(names, prefixlists.Folder)
	return forgetFiles(dir, names, func(path string) error {
		if filepath.Base(path) == prefixlists.Folder {
			return os.RemoveAll(path)
		}
		return statefile.RemoveFile(path)
	})
}

func forgetFiles(dir string, names []string, remove func(path string) error) error {
	var left []string
	var failed error
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := remove(path); err != nil {
			left, failed = append(left, path), err
		}
	}
	if failed == nil {
		return nil
	}
	files := strings.Join(left, " ")
	hint := "sudo rm " + files
	if first := statefile.DiskRemedy(dir, failed); first != "" {
		hint = first + "; then: " + hint
	}
	return &api.Error{
		Code:    api.CodeInternal,
		Message: fmt.Sprintf("all limits are lifted, but what was wanted cannot be removed from the disk, and the next daemon would set it again: %v", failed),
		Hint:    hint,
		Cause:   failed,
	}
}
