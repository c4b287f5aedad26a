package bpf

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf/btf"
)

// CarryRates takes the rates that programs have set on their sockets out of the map of
// another release that is taken over. What that keeps otherwise than by these names is
// lost.
func (o *Object) CarryRates() error {
	if !o.former {
		return nil
	}
	sockets, err := o.formerMap("sockets", "nn_socket")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer sockets.m.Close()
	at, err := formerSocketOf(sockets.of)
	if err != nil {
		return err
	}
	if err := o.FormerSocket.Set(at); err != nil {
		return fmt.Errorf("set iterator argument: %w", err)
	}
	if _, err := run(o.NnCarryRates, sockets.m); err != nil {
		return fmt.Errorf("take over the rates of sockets: %w", err)
	}
	return nil
}

// formerSocketOf says where the fields are that CarryRates needs.
func formerSocketOf(of *btf.Struct) (at formerSocket, err error) {
	return at, fieldsOf(of, map[string]field{
		"rate_bytes_per_sec":    {&at.RateBytesPerSec, 8},
		"receive_bytes_per_sec": {&at.ReceiveBytesPerSec, 8},
		"child":                 {&at.Child, 8},
		"start_boottime_ns":     {&at.StartBoottimeNs, 8},
		"cgroup":                {&at.Cgroup, 8},
		"tgid":                  {&at.Tgid, 4},
		"uid":                   {&at.Uid, 4},
	})
}
