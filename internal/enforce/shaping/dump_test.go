package shaping

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

func TestDump(t *testing.T) {
	calls := 0
	interrupted := func(times int) func() ([]int, error) {
		calls = 0
		return func() ([]int, error) {
			if calls++; calls <= times {
				return []int{1}, fmt.Errorf("list: %w", netlink.ErrDumpInterrupted)
			}
			return []int{1, 2}, nil
		}
	}
	got, err := dump(interrupted(dumpTries - 1))
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, got)
	_, err = dump(interrupted(1000))
	require.ErrorIs(t, err, netlink.ErrDumpInterrupted)
	require.Equal(t, dumpTries, calls)
	_, err = dump(func() ([]int, error) { calls = -1; return nil, os.ErrPermission })
	require.ErrorIs(t, err, os.ErrPermission)
}

func pairOf(name string) *netlink.Veth {
	return &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "peer"}
}

// TestDumpBesideChanges checks that a list has all devices that stay, while others come and go.
func TestDumpBesideChanges(t *testing.T) {
	testutil.RequireRoot(t)
	ns, err := testbed.NewNetNS()
	must(t, err)
	t.Cleanup(func() { _ = ns.Close() })
	nl := ns.Netlink()
	const stay = 40
	for i := range stay / 2 {
		must(t, nl.LinkAdd(pairOf(fmt.Sprintf("stay%d", i))))
	}
	end, over := make(chan struct{}), sync.WaitGroup{}
	var changes error
	over.Go(func() {
		changes = ns.Do(func() error {
			for {
				select {
				case <-end:
					return nil
				default:
				}
				link := pairOf("comes")
				if err := netlink.LinkAdd(link); err != nil {
					return err
				}
				if err := netlink.LinkDel(link); err != nil {
					return err
				}
			}
		})
	})
	interrupted := 0
	for range 500 {
		links, err := dump(func() ([]netlink.Link, error) {
			links, err := nl.LinkList()
			if err != nil {
				interrupted++
			}
			return links, err
		})
		must(t, err)
		require.GreaterOrEqual(t, len(links), stay)
	}
	close(end)
	over.Wait()
	must(t, changes)
	t.Logf("%d lists were interrupted", interrupted)
}
