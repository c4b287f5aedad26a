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

// A release whose maps have another layout cannot take over what is pinned. It sets
// the folder aside, so that the former's programs hold the limits on; comes up
// beside them; sets the same limits; and removes the former then.

// formerDir is where what another release has pinned waits meanwhile.
func formerDir(pinDir string) string { return pinDir + "_former" }

func hasFormer(pinDir string) bool {
	_, err := os.Stat(formerDir(pinDir))
	return err == nil
}

// LoadAnew is Load for a folder whose maps have another layout: these are set aside
// with all that is attached, until RemoveFormer. After an error all is as before.
func LoadAnew(opts Options) (*Object, error) {
	aside := formerDir(opts.PinDir)
	lock, err := lockPinDir(opts.PinDir)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if _, err := removePins(aside); err != nil { // of a release before that one
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

// noteFormer tells the programs whether another release's are attached, too.
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

// Former says whether what another release has pinned is still in force.
func (o *Object) Former() bool { return o.former }

// FormerShapes says whether that limits what comes in.
func (o *Object) FormerShapes() bool {
	_, err := os.Stat(filepath.Join(formerDir(o.opts.PinDir), shapingMark))
	return o.former && err == nil
}

// DetachFormerDevices takes off devices, and from where else they are attached, the
// former's programs that have to do with its devices.
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

// RemoveFormer ends what another release left, once its limits are set anew.
func (o *Object) RemoveFormer() error {
	ours, err := removePins(formerDir(o.opts.PinDir))
	if err != nil {
		return err
	}
	if ours { // the file system is to go with this one's pins
		if err := os.Mkdir(filepath.Join(o.opts.PinDir, mounted), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("mark %s: %w", o.opts.PinDir, err)
		}
	}
	return o.noteFormer()
}

// ownPrograms are the programs, by the hook's name, that are pinned in the folder or
// set aside beside it.
func ownPrograms(pinDir, hook string) []ebpf.ProgramID {
	return slices.DeleteFunc([]ebpf.ProgramID{
		pinnedProgram(linkPath(pinDir, hook)), pinnedProgram(linkPath(formerDir(pinDir), hook)),
	}, func(id ebpf.ProgramID) bool { return id == 0 })
}
