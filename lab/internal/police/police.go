// Package police is a policer to compare ingress limits with: it drops a cgroup's ingress beyond a token bucket.
package police

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -go-package police -type bucket police bpf/police.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"github.com/netnice/netnice/internal/identity"
)

const (
	depth = 200 * time.Millisecond // depth of the token bucket...
	// ...and at least this much: a veth pair gives TCP's largest chunk, with a
	// header for each segment, to the policer in one.
	least = 72 << 10
)

// Police drops the ingress of a cgroup of its own beyond a rate.
type Police struct {
	dir     string // folder of the cgroup
	objects policeObjects
	link    link.Link
}

// New makes the cgroup, which a receiver has to join before it makes its sockets. The program drops nothing yet.
func New() (*Police, error) {
	machine, err := identity.New(identity.Options{})
	if err != nil {
		return nil, fmt.Errorf("set up policing: %w", err)
	}
	root, err := machine.CgroupRoot()
	if err != nil {
		return nil, fmt.Errorf("set up policing: %w", err)
	}
	dir, err := os.MkdirTemp(root, "netnice-lab-police-")
	if err != nil {
		return nil, fmt.Errorf("set up policing: %w", err)
	}
	return &Police{dir: dir}, nil
}

// Start is New with a rate from the beginning on.
func Start(bytesPerSec uint64) (*Police, error) {
	p, err := New()
	if err != nil {
		return nil, err
	}
	if err := p.Begin(bytesPerSec); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Begin drops the excess over that rate from now on.
func (p *Police) Begin(bytesPerSec uint64) error {
	if err := p.attach(bytesPerSec); err != nil {
		return fmt.Errorf("begin policing: %w", err)
	}
	return nil
}

func (p *Police) attach(bytesPerSec uint64) error {
	if err := rlimit.RemoveMemlock(); err != nil {
		return err
	}
	spec, err := loadPolice()
	if err != nil {
		return err
	}
	if err := spec.Variables["rate_bytes_per_sec"].Set(bytesPerSec); err != nil {
		return err
	}
	if err := spec.Variables["depth_ns"].Set(depthNanos(bytesPerSec)); err != nil {
		return err
	}
	if err := spec.LoadAndAssign(&p.objects, nil); err != nil {
		return err
	}
	p.link, err = link.AttachCgroup(link.CgroupOptions{Path: p.dir, Attach: ebpf.AttachCGroupInetIngress, Program: p.objects.Police})
	return err
}

// depthNanos returns the bucket's depth, in the time that the rate takes to fill it.
func depthNanos(bytesPerSec uint64) uint64 {
	return max(uint64(depth), least*uint64(time.Second)/bytesPerSec)
}

// Dir returns the cgroup's folder.
func (p *Police) Dir() string { return p.dir }

// Dropped returns the number of segments dropped so far.
func (p *Police) Dropped() (uint64, error) {
	var b policeBucket
	if err := p.objects.Buckets.Lookup(uint32(0), &b); err != nil {
		return 0, fmt.Errorf("read what was policed: %w", err)
	}
	return b.Dropped, nil
}

// Close detaches the program and removes the cgroup, in which no process may run.
func (p *Police) Close() error {
	var errs []error
	if p.link != nil {
		errs = append(errs, p.link.Close())
	}
	return errors.Join(append(errs, p.objects.Close(), os.Remove(p.dir))...)
}
