package main

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -go-package main -type bucket police bpf/police.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3

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
	policeDepth = 200 * time.Millisecond // of the token bucket...
	// ...and at least this much: a veth pair gives TCP's largest chunk, with a
	// header for each segment, to the policer in one.
	policeLeast = 72 << 10
)

// police drops what a cgroup of its own receives beyond a rate.
type police struct {
	dir     string // of the cgroup
	objects policeObjects
	link    link.Link
}

// startPolice makes the cgroup, which the receiver has to join before it makes
// its sockets.
func startPolice(bytesPerSec uint64) (*police, error) {
	p := new(police)
	if err := p.setUp(bytesPerSec); err != nil {
		return nil, errors.Join(fmt.Errorf("set up policing: %w", err), p.close())
	}
	return p, nil
}

func (p *police) setUp(bytesPerSec uint64) error {
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
	if err := spec.Variables["depth_ns"].Set(policeDepthNanos(bytesPerSec)); err != nil {
		return err
	}
	if err := spec.LoadAndAssign(&p.objects, nil); err != nil {
		return err
	}
	machine, err := identity.New(identity.Options{})
	if err != nil {
		return err
	}
	root, err := machine.CgroupRoot()
	if err != nil {
		return err
	}
	if p.dir, err = os.MkdirTemp(root, "netnice-bench-ingress-"); err != nil {
		return err
	}
	p.link, err = link.AttachCgroup(link.CgroupOptions{Path: p.dir, Attach: ebpf.AttachCGroupInetIngress, Program: p.objects.Police})
	return err
}

// policeDepthNanos is the bucket's depth, in the time that the rate takes to
// fill it.
func policeDepthNanos(bytesPerSec uint64) uint64 {
	return max(uint64(policeDepth), policeLeast*uint64(time.Second)/bytesPerSec)
}

// dropped returns how many segments were dropped so far.
func (p *police) dropped() (uint64, error) {
	var b policeBucket
	if err := p.objects.Buckets.Lookup(uint32(0), &b); err != nil {
		return 0, fmt.Errorf("read what was policed: %w", err)
	}
	return b.Dropped, nil
}

// close detaches the program and removes the cgroup, in which no process may
// be.
func (p *police) close() error {
	var errs []error
	if p.link != nil {
		errs = append(errs, p.link.Close())
	}
	errs = append(errs, p.objects.Close())
	if p.dir != "" {
		errs = append(errs, os.Remove(p.dir))
	}
	return errors.Join(errs...)
}
