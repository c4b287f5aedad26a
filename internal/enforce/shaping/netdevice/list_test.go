package netdevice

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

func TestList(t *testing.T) {
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
	got, err := List(interrupted(listTries - 1))
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, got)
	_, err = List(interrupted(1000))
	require.ErrorIs(t, err, netlink.ErrDumpInterrupted)
	require.Equal(t, listTries, calls)
	_, err = List(func() ([]int, error) { calls = -1; return nil, os.ErrPermission })
	require.ErrorIs(t, err, os.ErrPermission)
}

func pairOf(name string) *netlink.Veth {
	return &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "peer"}
}

// TestListBesideChanges checks that a list has all devices that stay, while others come and go.
func TestListBesideChanges(t *testing.T) {
	testutil.RequireRoot(t)
	ns, err := testbed.NewNetNS()
	require.NoError(t, err)
	t.Cleanup(func() { _ = ns.Close() })
	nl := ns.Netlink()
	const stay = 40
	for i := range stay / 2 {
		require.NoError(t, nl.LinkAdd(pairOf(fmt.Sprintf("stay%d", i))))
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
		links, err := List(func() ([]netlink.Link, error) {
			links, err := nl.LinkList()
			if err != nil {
				interrupted++
			}
			return links, err
		})
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(links), stay)
	}
	close(end)
	over.Wait()
	require.NoError(t, changes)
	t.Logf("%d lists were interrupted", interrupted)
}
