package bpf

import (
	"testing"

	"github.com/cilium/ebpf"
)

// The objects that are loaded beside the main one share every map that has the same name there. A map of their own
// would be empty.
func TestMapsAreShared(t *testing.T) {
	shared := (&Object{}).shared()
	first, err := loadNetnice()
	if err != nil {
		t.Fatal(err)
	}
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){"shaping": loadShaping, "sending": loadSending} {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		for m := range spec.Maps {
			_, is := shared[m]
			if first.Maps[m] != nil && m[0] != '.' && !is {
				t.Errorf("%s has a map %s of its own", name, m)
			}
		}
	}
}
