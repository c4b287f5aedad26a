package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// CarryRates takes the rates that programs have set on their sockets out of the map of
// another release that is taken over. What that keeps otherwise than by these names is
// lost.
func (o *Object) CarryRates() error {
	if !o.former {
		return nil
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(formerDir(o.opts.PinDir), "sockets"), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open another release's sockets: %w", err)
	}
	defer m.Close()
	h, err := m.Handle()
	if err != nil {
		return fmt.Errorf("read how another release keeps sockets: %w", err)
	}
	defer h.Close()
	spec, err := h.Spec(nil)
	if err != nil {
		return fmt.Errorf("read how another release keeps sockets: %w", err)
	}
	var of *btf.Struct
	if err := spec.TypeByName("nn_socket", &of); err != nil {
		return fmt.Errorf("read how another release keeps sockets: %w", err)
	}
	at, err := formerSocketOf(of)
	if err != nil {
		return err
	}
	if err := o.FormerSocket.Set(at); err != nil {
		return fmt.Errorf("set iterator argument: %w", err)
	}
	if _, err := run(o.NnCarryRates, m); err != nil {
		return fmt.Errorf("take over the rates of sockets: %w", err)
	}
	return nil
}

// formerSocketOf says where the fields are that CarryRates needs.
func formerSocketOf(of *btf.Struct) (at formerSocket, err error) {
	for name, f := range map[string]struct {
		at   *uint32
		size int
	}{
		"rate_bytes_per_sec":    {&at.RateBytesPerSec, 8},
		"receive_bytes_per_sec": {&at.ReceiveBytesPerSec, 8},
		"child":                 {&at.Child, 8},
		"start_boottime_ns":     {&at.StartBoottimeNs, 8},
		"cgroup":                {&at.Cgroup, 8},
		"tgid":                  {&at.Tgid, 4},
		"uid":                   {&at.Uid, 4},
	} {
		found := false
		for _, m := range of.Members {
			if m.Name != name || m.BitfieldSize != 0 {
				continue
			}
			size, err := btf.Sizeof(m.Type)
			if err != nil {
				return at, fmt.Errorf("read how another release keeps sockets: %w", err)
			}
			*f.at, found = m.Offset.Bytes(), size == f.size
		}
		if !found {
			return at, fmt.Errorf("another release keeps no %s of %d bytes with sockets: %w", name, f.size, ErrLayout)
		}
	}
	return at, nil
}
