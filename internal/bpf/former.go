package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// A release whose maps have another layout cannot take over the pins of the previous release. It sets the pin folder
// aside, so that the programs of the previous release keep the limits in force. Then it starts beside them, sets the
// same limits, and removes the pins of the previous release.

// formerDir returns the folder that holds the other release's pins meanwhile.
func formerDir(pinDir string) string { return pinDir + "_former" }

func hasFormer(pinDir string) bool {
	_, err := os.Stat(formerDir(pinDir))
	return err == nil
}

// LoadAnew is Load for a folder whose maps have another layout. It sets these aside, with all attachments, until
// RemoveFormer. After an error everything is as before.
func LoadAnew(opts Options) (*Object, error) {
	aside := formerDir(opts.PinDir)
	lock, err := lockPinDir(opts.PinDir)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if _, err := removePins(aside); err != nil { // pins of a release before that one
		return nil, err
	}
	if err := os.Rename(opts.PinDir, aside); err != nil {
		return nil, fmt.Errorf("set the pins of another netnice release aside: %w", err)
	}
	o, err := Load(opts)
	if err != nil {
		_, removed := removePins(opts.PinDir)
		return nil, errors.Join(err, removed, os.Rename(aside, opts.PinDir))
	}
	return o, nil
}

// noteFormer tells the programs whether those of another release are attached, too.
func (o *Object) noteFormer() error {
	var there uint32
	if o.former = hasFormer(o.opts.PinDir); o.former {
		there = 1
	}
	if err := o.FormerRelease.Set(there); err != nil {
		return fmt.Errorf("note another release's programs: %w", err)
	}
	return nil
}

// Former reports whether the pins of another release are still in force.
func (o *Object) Former() bool { return o.former }

// FormerShapes reports whether the pins of another release limit ingress.
func (o *Object) FormerShapes() bool {
	_, err := os.Stat(filepath.Join(formerDir(o.opts.PinDir), shapingMark))
	return o.former && err == nil
}

// DetachFormerDevices detaches the other release's programs that serve its devices, wherever they are attached. These
// are all of its links that are not in allHooks.
func (o *Object) DetachFormerDevices() error {
	own := map[string]bool{}
	for _, h := range allHooks() {
		own[h.name] = true
	}
	entries, err := os.ReadDir(formerDir(o.opts.PinDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look at another release's programs: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if name, isLink := strings.CutPrefix(e.Name(), "link_"); isLink && !own[name] {
			errs = append(errs, os.Remove(filepath.Join(formerDir(o.opts.PinDir), e.Name())))
		}
	}
	return errors.Join(errs...)
}

// RemoveFormer removes the pins of another release. The caller has set the limits again before.
func (o *Object) RemoveFormer() error {
	ours, err := removePins(formerDir(o.opts.PinDir))
	if err != nil {
		return err
	}
	if ours { // the file system must go with this release's pins
		if err := os.Mkdir(filepath.Join(o.opts.PinDir, mounted), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("mark %s: %w", o.opts.PinDir, err)
		}
	}
	return o.noteFormer()
}

// ownPrograms returns the programs of the named hook that are pinned in the folder, or in the one set aside beside it.
func ownPrograms(pinDir, hook string) []ebpf.ProgramID {
	return slices.DeleteFunc([]ebpf.ProgramID{
		pinnedProgram(linkPath(pinDir, hook)), pinnedProgram(linkPath(formerDir(pinDir), hook)),
	}, func(id ebpf.ProgramID) bool { return id == 0 })
}
