package daemon

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/testutil"
)

// zone is a fake resolver. It answers for a.example with the addresses that the test sets.
type zone struct {
	mu        sync.Mutex
	addresses []netip.Addr
}

func (z *zone) set(addresses ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.addresses = nil
	for _, a := range addresses {
		z.addresses = append(z.addresses, netip.MustParseAddr(a))
	}
}

func (z *zone) lookup(_ context.Context, name string) ([]netip.Addr, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if name != "a.example" || len(z.addresses) == 0 {
		return nil, errors.New("no such host")
	}
	return slices.Clone(z.addresses), nil
}

func TestSetToName(t *testing.T) {
	var z zone
	z.set("::ffff:192.0.2.1", "2001:db8::1")
	fake := new(enforcetest.Kernel)
	opts := testOptions(t, fake)
	opts.LookupNames, opts.NamesEvery = z.lookup, 20*time.Millisecond
	h := start(t, fake, opts)
	_, err := h.set(root, "to:b.example", up(1e6))
	testutil.RequireCode(t, api.CodeNotFound, err)
	require.Zero(t, h.count(), "nothing is changed")

	const subject = "to:a.example,10.0.0.0/8"
	all := h.hear(root)
	told := func(text string) {
		t.Helper()
		h.eventually(text, func() bool { return all.last(api.EventNameChanged).Message == text })
	}
	node := h.mustSet(root, subject, up(1e6))
	require.Equal(t, "to:10.0.0.0/8,a.example", node.Subject.String())
	require.Equal(t, []api.NameAddresses{{Name: "a.example", Addresses: []string{"192.0.2.1", "2001:db8::1"}}}, node.Names)
	holds := func(h *harness, address string) bool { return h.holdsTo(enforce.BookAdmin, address) != "" }
	for _, address := range []string{"10.1.2.3", "192.0.2.1", "2001:db8::1"} {
		require.True(t, holds(h, address), address)
	}
	require.False(t, holds(h, "192.0.2.2"))

	// The name gets another address.
	z.set("192.0.2.2")
	h.eventually("the new address", func() bool { return holds(h, "192.0.2.2") && !holds(h, "192.0.2.1") && !holds(h, "2001:db8::1") })
	require.True(t, holds(h, "10.1.2.3"))
	told("a.example: 192.0.2.2")

	// The name has no address now. The limit keeps the last address, and an event says so.
	z.set()
	told("a.example: 192.0.2.2, as before: no such host")
	shown, err := h.nodesFor(subject)
	require.NoError(t, err)
	require.Equal(t, "no such host", shown[0].Names[0].Problem)
	require.True(t, holds(h, "192.0.2.2"))
	_, err = h.remove(root, subject)
	require.NoError(t, err)
	require.False(t, holds(h, "192.0.2.2"))
}

// A restarted daemon knows the addresses, too, although its resolver does not answer.
func TestNamesAfterARestart(t *testing.T) {
	var z zone
	z.set("192.0.2.1")
	fake := new(enforcetest.Kernel)
	opts := testOptions(t, fake)
	opts.LookupNames, opts.NamesEvery = z.lookup, 20*time.Millisecond
	h := start(t, fake, opts)
	holds := func(h *harness, address string) bool { return h.holdsTo(enforce.BookAdmin, address) != "" }
	h.mustSet(root, "to:a.example", up(1e6))
	z.set("192.0.2.2")
	h.eventually("the new address", func() bool { return holds(h, "192.0.2.2") })
	z.set()
	require.NoError(t, h.stop())
	h = start(t, fake, opts)
	require.True(t, holds(h, "192.0.2.2"))
	z.set("192.0.2.3")
	h.eventually("it is found again", func() bool { return holds(h, "192.0.2.3") && !holds(h, "192.0.2.2") })
}
