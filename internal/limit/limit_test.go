package limit

import (
	"reflect"
	"testing"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
)

func to[T any](v T) *T { return &v }

// full is a request that sets every field.
func full() api.Wish {
	return api.Wish{
		UpBytesPerSec: to(uint64(1)), DownBytesPerSec: to(uint64(2)), TotalBytesPerSec: to(uint64(3)),
		MinBytesPerSec: to(uint64(4)), MinDownBytesPerSec: to(uint64(5)), BurstNS: to(uint64(6)), Weight: to(uint32(7)),
		DSCP: to(8), Reserve: &api.Reservation{Link: "eth0", PeriodNS: 2e6, SliceNS: 1e6}, Line: &api.Line{OverheadBytes: 9},
		Grant: &api.Grant{Link: "eth0", PPM: 10}, Loopback: to(true), InputMeter: to(false), Persist: to(false),
	}
}

// Each field of a request belongs to one field of a limit, and the table has it.
func TestTableIsWhole(t *testing.T) {
	all := reflect.ValueOf(full())
	if n := all.NumField(); n != len(fields) || n != reflect.TypeFor[Limit]().NumField() {
		t.Errorf("a request has %d fields, a limit %d, and the table %d", n, reflect.TypeFor[Limit]().NumField(), len(fields))
	}
	changedBy := make(map[string]string)
	for i := range all.NumField() {
		name := all.Type().Field(i).Name
		var w api.Wish
		if all.Field(i).IsNil() {
			t.Fatalf("full leaves %s out", name)
		}
		reflect.ValueOf(&w).Elem().Field(i).Set(all.Field(i))
		asked := 0
		var l Limit
		for _, f := range fields {
			if f.asked(&w) {
				asked++
				f.merge(&l, &w)
			}
		}
		if asked != 1 {
			t.Errorf("%d fields of the table take %s of a request", asked, name)
		}
		for j := range reflect.TypeFor[Limit]().NumField() {
			if field := reflect.ValueOf(l).Field(j); !field.IsZero() {
				changed := reflect.TypeFor[Limit]().Field(j).Name
				if by := changedBy[changed]; by != "" {
					t.Errorf("%s and %s change %s", by, name, changed)
				}
				changedBy[changed] = name
			}
		}
	}
	if len(changedBy) != len(fields) {
		t.Errorf("requests change %v alone", changedBy)
	}
}

func TestMerge(t *testing.T) {
	rate := Limit{Up: 5, Weight: 10, BurstNS: 3, Loopback: true}
	for _, c := range []struct {
		name    string
		had     Limit
		request api.Wish
		want    Limit
	}{
		{"nothing asked", rate, api.Wish{}, rate},
		{"a second rate", rate, api.Wish{DownBytesPerSec: to(uint64(7))}, Limit{Up: 5, Down: 7, Weight: 10, BurstNS: 3, Loopback: true}},
		{"the last rate lifted", rate, api.Wish{UpBytesPerSec: to(uint64(0))}, Limit{}},
		{"the last rate lifted, a weight set", rate, api.Wish{UpBytesPerSec: to(uint64(0)), Weight: to(uint32(20))}, Limit{Weight: 20, BurstNS: 3, Loopback: true}},
		{"one of two rates lifted", Limit{Up: 5, Down: 7}, api.Wish{UpBytesPerSec: to(uint64(0))}, Limit{Down: 7}},
		{"a rate that was not set lifted", Limit{Weight: 10}, api.Wish{UpBytesPerSec: to(uint64(0))}, Limit{Weight: 10}},
		{"no mark, which was not set", Limit{Weight: 10}, api.Wish{DSCP: to(-1)}, Limit{Weight: 10}},
		{"the mark lifted", Limit{DSCP: 1, Weight: 10}, api.Wish{DSCP: to(-1)}, Limit{}},
		{"a reservation instead of a guarantee", Limit{Min: 5}, api.Wish{Reserve: full().Reserve}, Limit{Reserve: SliceOf(*full().Reserve)}},
		{"a guarantee instead of a reservation", Limit{Reserve: SliceOf(*full().Reserve)}, api.Wish{MinBytesPerSec: to(uint64(5))}, Limit{Min: 5}},
		{"a reservation released", Limit{Reserve: SliceOf(*full().Reserve)}, api.Wish{Reserve: &api.Reservation{}}, Limit{}},
		{"only what qualifies", Limit{}, api.Wish{BurstNS: to(uint64(5)), Persist: to(false)}, Limit{}},
	} {
		if got := c.had.Merge(c.request); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestLiftsOnly(t *testing.T) {
	for _, c := range []struct {
		request api.Wish
		want    bool
	}{
		{api.Wish{}, false},
		{api.Wish{BurstNS: to(uint64(0))}, false},
		{api.Wish{UpBytesPerSec: to(uint64(0)), BurstNS: to(uint64(5))}, true},
		{api.Wish{UpBytesPerSec: to(uint64(0)), DownBytesPerSec: to(uint64(1))}, false},
		{api.Wish{DSCP: to(-1), Weight: to(uint32(0)), Grant: &api.Grant{}}, true},
		{api.Wish{DSCP: to(0)}, false},
		{full(), false},
	} {
		if got := LiftsOnly(c.request); got != c.want {
			t.Errorf("%+v: %v", c.request, got)
		}
	}
}

// The kernel side's node of limits says what they were, as far as it keeps them by owner.
func TestOfNode(t *testing.T) {
	o := Owners{enforce.OwnerAdmin: {Up: 5, Total: 9, Min: 2, MinDown: 3, Weight: 20, Loopback: true, DSCP: 9, Line: Line{Overhead: 4}}, enforce.OwnerUser: {Down: 6, BurstNS: 5e6}}
	spec := enforce.NodeSpec{
		Ceilings: o.Ceilings(), Weight: o.Weight(), Guarantee: o.Guarantee(), GuaranteeDown: o[enforce.OwnerAdmin].MinDown,
		DSCP: o.DSCP(), Line: o[enforce.OwnerAdmin].Line.Enforced(), Loopback: o.Loopback(), MeterOff: o.MeterOff(),
	}
	for i := range spec.Ceilings[enforce.OwnerAdmin] { // the kernel side spells the default out
		spec.Ceilings[enforce.OwnerAdmin][i].BurstNS = DefaultBurstNS
	}
	for _, d := range []enforce.Direction{enforce.Up, enforce.Total} {
		spec.Ceilings[enforce.OwnerUser][d].BurstNS = DefaultBurstNS
	}
	if got := OfNode(spec); got != o {
		t.Errorf("%+v, want %+v", got, o)
	}
}

// The table says of each field, for people, what it is and which values it may have.
func TestFieldsAreDescribed(t *testing.T) {
	names := make(map[string]bool)
	for _, f := range Fields() {
		if f.Means == "" || f.Values == "" || names[f.Name] {
			t.Errorf("the field %q: %+v", f.Name, f)
		}
		names[f.Name] = true
	}
	if len(names) != len(fields) {
		t.Errorf("%d of %d fields", len(names), len(fields))
	}
}
