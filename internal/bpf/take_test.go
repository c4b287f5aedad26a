package bpf

import (
	"reflect"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
)

// takenElsewhere are the programs and maps that take does not put into the field of their name: the hook instead of
// nn_egress, the iterators of eachSocket, and the map of another release.
var takenElsewhere = []string{
	"nn_egress_users",
	"nn_list_sockets", "nn_files_list_sockets", "nn_conns_list_sockets",
	"nn_assign_sockets", "nn_files_assign_sockets", "nn_conns_assign_sockets",
	"nn_carry_rates", "nn_files_carry_rates", "nn_conns_carry_rates", formerSocketsMap,
}

// take names each program and map of the object by hand. What it leaves out stays nil, and its hook is not attached.
func TestTakeLeavesNothingOut(t *testing.T) {
	spec, err := loadNetnice()
	if err != nil {
		t.Fatal(err)
	}
	loaded := &ebpf.Collection{
		Programs: map[string]*ebpf.Program{}, Maps: map[string]*ebpf.Map{}, Variables: map[string]*ebpf.Variable{},
	}
	for name := range spec.Programs {
		loaded.Programs[name] = new(ebpf.Program)
	}
	for name := range spec.Maps {
		loaded.Maps[name] = new(ebpf.Map)
	}
	for name := range spec.Variables {
		loaded.Variables[name] = new(ebpf.Variable)
	}
	var o Object
	o.take(loaded)
	for _, fields := range []reflect.Value{reflect.ValueOf(o.netnicePrograms), reflect.ValueOf(o.netniceMaps)} {
		for i := range fields.NumField() {
			name := fields.Type().Field(i).Tag.Get("ebpf")
			if fields.Field(i).IsNil() && !slices.Contains(takenElsewhere, name) {
				t.Errorf("take leaves %s out", name)
			}
		}
	}
}
