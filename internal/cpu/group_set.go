package cpu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Set changes a group's share.
func (m *Machine) Set(ctx context.Context, g Group, s Share) error {
	// The kernel refuses a burst that is larger than the slice, at any moment of the change.
	if err := m.setMakeUp(g, 0); err != nil {
		return err
	}
	var err error
	if g.Unit != "" {
		err = m.setScope(ctx, g, s)
	} else {
		err = m.set(g, s)
	}
	if err != nil {
		return err
	}
	if s.Exact {
		return nil
	}
	return m.setMakeUp(g, min(s.SliceNS, uint64(makeUp)))
}

// setMakeUp sets the burst. It has no effect before Linux 5.14, and where an ancestor group has a lower ceiling.
func (m *Machine) setMakeUp(g Group, ns uint64) error {
	file := "cpu.cfs_burst_us"
	if m.v2 {
		file = "cpu.max.burst"
	}
	err := write(g.Dir, file, strconv.FormatUint(ns/1000, 10))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) && ns > 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("set the ceiling: %w", err)
	}
	return nil
}

func (m *Machine) set(g Group, s Share) error {
	if m.v2 {
		ceiling := "max 100000"
		if s.SliceNS != 0 {
			ceiling = fmt.Sprintf("%d %d", us(s.SliceNS), us(s.PeriodNS))
		}
		if err := write(g.Dir, "cpu.max", ceiling); err != nil {
			return fmt.Errorf("set the ceiling: %w", err)
		}
		if err := write(g.Dir, "cpu.weight", strconv.FormatUint(weightV2(s.Weight), 10)); err != nil {
			return fmt.Errorf("set the weight: %w", err)
		}
		return nil
	}
	if err := write(g.Dir, "cpu.shares", strconv.FormatUint(s.Weight, 10)); err != nil {
		return fmt.Errorf("set the weight: %w", err)
	}
	// Version 1 checks each file by itself against the ancestor groups. Without a quota it accepts any period.
	err := write(g.Dir, "cpu.cfs_quota_us", "-1")
	if err == nil && s.SliceNS != 0 {
		err = write(g.Dir, "cpu.cfs_period_us", strconv.FormatUint(us(s.PeriodNS), 10))
		if err == nil {
			err = write(g.Dir, "cpu.cfs_quota_us", strconv.FormatUint(us(s.SliceNS), 10))
		}
		if errors.Is(err, unix.EINVAL) && m.tighter(filepath.Dir(g.Dir), s) {
			return nil // version 1 allows no higher ceiling in there; the ancestor's holds
		}
	}
	if err != nil {
		return fmt.Errorf("set the ceiling: %w", err)
	}
	return nil
}

// tighter reports whether a group of version 1, or one of its ancestors, has a ceiling as low as s, or lower.
func (m *Machine) tighter(dir string, s Share) bool {
	for ; strings.HasPrefix(dir, m.mount); dir = filepath.Dir(dir) {
		quota, err1 := number(dir, "cpu.cfs_quota_us")
		period, err2 := number(dir, "cpu.cfs_period_us")
		if err1 == nil && err2 == nil && quota > 0 && quota*int64(s.PeriodNS) <= period*int64(s.SliceNS) {
			return true
		}
	}
	return false
}

func number(dir, file string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

func us(ns uint64) uint64 { return max(ns/1000, 1) }

// weightV2 returns a weight in the unit of cgroup v2, whose ordinary weight is 100.
func weightV2(w uint64) uint64 { return min(max((w*100+OrdinaryWeight/2)/OrdinaryWeight, 1), 10000) }
