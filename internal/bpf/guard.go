package bpf

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Guard waits until in ends. The daemon holds the other end, so in ends when the daemon does, for whatever reason. If
// the daemon left the egress hook below the root, Guard moves it to the root: no daemon tracks the limited processes to
// other cgroups any more. Guard does nothing if the pins are gone, or if another daemon has them.
func Guard(opts Options, in io.Reader) error {
	if _, err := io.Copy(io.Discard, in); err != nil {
		return fmt.Errorf("wait for the daemon's end: %w", err)
	}
	lock, err := lockWithin(lockWait, time.Millisecond, func() (f *os.File, again bool, err error) {
		f, err = lockDir(opts.PinDir)
		return f, errors.Is(err, ErrInUse), err
	})
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrInUse) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	o := &Object{opts: opts, links: map[string]link.Link{}}
	if o.NnEgress, err = pinnedEgress(opts.PinDir); err != nil || o.NnEgress == nil {
		return err
	}
	defer o.NnEgress.Close()
	if o.Policy, err = ebpf.LoadPinnedMap(filepath.Join(opts.PinDir, netniceMapPolicy), nil); err != nil {
		return fmt.Errorf("open the policy: %w", err)
	}
	defer o.Policy.Close()
	err = o.MoveEgress("/", func(cover uint64) error {
		var p Policy
		if err := o.Policy.Lookup(uint32(0), &p); err != nil {
			return fmt.Errorf("read the policy: %w", err)
		}
		p.Cover = cover
		return o.Policy.Put(uint32(0), &p)
	})
	if l := o.links[egressHook]; l != nil {
		err = errors.Join(err, l.Close()) // its pin keeps it
	}
	return err
}

// pinnedEgress returns the program of the pinned egress hook, nil if there is none.
func pinnedEgress(dir string) (*ebpf.Program, error) {
	l, err := link.LoadPinnedLink(linkPath(dir, egressHook), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the egress hook: %w", err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return nil, fmt.Errorf("look at the egress hook: %w", err)
	}
	p, err := ebpf.NewProgramFromID(info.Program)
	if err != nil {
		return nil, fmt.Errorf("open the egress program: %w", err)
	}
	return p, nil
}
