package bpf

import (
	"testing"

	"github.com/cilium/ebpf"
)

// A map that the first object has is never a second one of the same name in those beside
// it: they would look at an empty one.
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
