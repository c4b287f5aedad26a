package daemon

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/testutil"
)

// The overhead of a line belongs to a link's limit. It needs a rate, is stored and shown, and ends with the limit.
func TestLine(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	h := start(t, fake, opts)
	link := "link:" + someDevice(t)
	adsl := &api.Line{OverheadBytes: 10, LeastBytes: 64, ATM: true}
	_, err := h.set(root, link, api.Wish{Line: adsl})
	testutil.RequireCode(t, api.CodeBadRequest, err)

	w := up(1e6)
	w.Line = adsl
	node := h.mustSet(root, link, w)
	require.Equal(t, adsl, node.Line)
	spec, _ := fake.Spec(node.ID)
	require.Equal(t, enforce.Line{OverheadBytes: 10, LeastBytes: 64, Cells: true}, spec.Line)
	require.Equal(t, adsl, h.mustSet(root, link, up(2e6)).Line, "another rate leaves it")

	require.NoError(t, h.stop())
	h = start(t, fake, opts)
	require.Equal(t, adsl, h.mustSet(root, link, up(3e6)).Line, "so does another daemon")
	require.Nil(t, h.mustSet(root, link, api.Wish{Line: &api.Line{}}).Line)
	spec, _ = fake.Spec(node.ID)
	require.Zero(t, spec.Line)

	h.mustSet(root, link, api.Wish{Line: adsl})
	_, err = h.remove(root, link)
	require.NoError(t, err)
	require.Nil(t, h.mustSet(root, link, up(1e6)).Line, "it went with the limit")
}

func TestLineRefused(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	least := uint64(1) // only administrators may set it, and it has its own check
	for name, c := range map[string]struct {
		by            auth.Actor
		subject, code string
		line          api.Line
		says          string
	}{
		"no link":       {root, "user:4242", api.CodeBadRequest, api.Line{OverheadBytes: 1}, "is no link"},
		"much overhead": {root, "link:lo", api.CodeBadRequest, api.Line{OverheadBytes: 256}, "at most 255"},
		"much at least": {root, "link:lo", api.CodeBadRequest, api.Line{LeastBytes: 1501}, "at most 1500"},
		"a user's":      {auth.Actor{UID: 4242}, "link:lo", api.CodeDenied, api.Line{OverheadBytes: 1}, "only the administrator"},
	} {
		w := up(1e6)
		w.Line, w.MinBytesPerSec = &c.line, &least
		subject, err := api.ParseSubject(c.subject)
		require.NoError(t, err)
		_, err = h.Set(context.Background(), c.by, api.SetRequest{Subject: subject, Wish: w})
		fault := testutil.RequireFault(t, c.code, err)
		require.Contains(t, fault.Message, c.says, name)
		if c.code == api.CodeDenied {
			require.Contains(t, fault.Hint, "sudo netnice link lo --up 1MB/s", name)
			require.Contains(t, fault.Hint, "--overhead 1 --mpu 0", name)
		}
	}
	require.Zero(t, fake.Calls("SetNode"))
}
