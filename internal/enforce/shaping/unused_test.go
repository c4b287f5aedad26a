package shaping

import (
	"errors"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/enforce/shaping/netdevice"
	"github.com/netnice/netnice/internal/enforce/shaping/queuepair"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// names returns the names of netnice's devices that nobody uses, if up returns false.
func names(t *testing.T, up func() (bool, error)) (out []string) {
	t.Helper()
	list, err := unused(up)
	if err != nil {
		t.Error(err)
	}
	for _, l := range list {
		out = append(out, l.Attrs().Name)
	}
	return out
}

// TestUnusedDevices checks that devices whose pins are gone are known by their alias, and removed if no netnice is up.
// Devices of another program are never removed.
func TestUnusedDevices(t *testing.T) {
	testutil.RequireRoot(t)
	ns, err := testbed.NewNetNS()
	must(t, err)
	t.Cleanup(func() { must(t, ns.Close()) })
	must(t, ns.Do(func() error {
		nl, err := netlink.NewHandle()
		if err != nil {
			return err
		}
		defer nl.Close()
		nobody := func() (bool, error) { return false, nil }
		if got := names(t, func() (bool, error) { return false, errors.New("asked without a device") }); len(got) != 0 {
			t.Errorf("without devices there are %q", got)
		}
		p := queuepair.Pair{NL: nl, Alias: netdevice.OwnAlias + "/sys/fs/bpf/gone 0:1"}
		if err := p.Make(); err != nil {
			return err
		}
		foreign := netlink.NewLinkAttrs()
		foreign.Name = "netnice7q" // another program may choose that name
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: foreign, PeerName: "netnice7r"}); err != nil {
			return err
		}
		want := []string{p.Queue.Attrs().Name, p.Back.Attrs().Name}
		if got := names(t, nobody); !slices.Equal(got, want) {
			t.Errorf("nobody uses %q, want %q", got, want)
		}
		if got := names(t, func() (bool, error) { return true, nil }); len(got) != 0 {
			t.Errorf("a netnice is up, and nobody is said to use %q", got)
		}
		if _, err := unused(func() (bool, error) { return false, errors.New("unknown") }); err == nil {
			t.Error("who is up is unknown, and that is no error")
		}
		list, err := unused(nobody)
		if err != nil {
			return err
		}
		for _, l := range list {
			if err := removeOwn(l); err != nil {
				return err
			}
		}
		if got := names(t, nobody); len(got) != 0 {
			t.Errorf("%q are left", got)
		}
		_, err = netlink.LinkByName("netnice7q")
		return err
	}))
}
