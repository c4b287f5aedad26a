package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/netnice/netnice/internal/netnamespace"
)

// CarryRates takes over the rates that programs have set on their sockets, from the map of another release. Rates that
// the other release keeps under other names are lost.
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
	each := o.carryRates
	if each.ofMap == nil {
		if each, err = o.loadCarryRates(sockets.m, at); err != nil {
			return fmt.Errorf("take over the rates of sockets: %w", err)
		}
		defer each.Close()
	}
	if _, err := each.run(sockets.m, netnamespace.Paths(nil)); err != nil {
		return fmt.Errorf("take over the rates of sockets: %w", err)
	}
	return nil
}

// formerSocketsMap is the name of the map that another release's map of sockets replaces when the programs are loaded.
const formerSocketsMap = "former_sockets"

// loadCarryRates loads the iterators over files and connections. They look up the sockets that they find in former.
func (o *Object) loadCarryRates(former *ebpf.Map, at formerSocket) (each eachSocket, err error) {
	spec, err := loadNetnice()
	if err != nil {
		return each, err
	}
	const name = "carry_rates"
	_, files, connections := eachSocketNames(name)
	used := map[string]bool{}
	maps.DeleteFunc(spec.Programs, func(name string, p *ebpf.ProgramSpec) bool {
		if name != files && name != connections {
			return true
		}
		for _, ins := range p.Instructions {
			used[ins.Reference()] = true
		}
		return false
	})
	maps.DeleteFunc(spec.Maps, func(name string, _ *ebpf.MapSpec) bool { return !used[name] })
	if err := spec.Variables["former_socket"].Set(at); err != nil {
		return each, fmt.Errorf("set iterator argument: %w", err)
	}
	maps.DeleteFunc(spec.Variables, func(name string, _ *ebpf.VariableSpec) bool { return name != "former_socket" }) // the maps of other variables are not loaded
	spec.Maps[formerSocketsMap].ValueSize, spec.Maps[formerSocketsMap].Flags = former.ValueSize(), former.Flags()
	instead := o.shared()
	maps.DeleteFunc(instead, func(name string, _ *ebpf.Map) bool { return !used[name] })
	instead[formerSocketsMap] = former
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: instead})
	if err != nil {
		return each, err
	}
	defer coll.Close()
	return eachSocket{files: coll.DetachProgram(files), connections: coll.DetachProgram(connections)}, nil
}

// formerSocketOf returns the offsets of the fields that CarryRates needs.
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
