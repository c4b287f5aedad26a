package daemon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
)

// A set warns of sockets without room for state, to which it applies. They are read without the daemon's lock: other
// requests go on meanwhile.
func TestSetWarnsOfStatelessSockets(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	pid := pidSubject(sleeper(t))
	node := h.mustSet(root, pid, up(2e6))
	answer, err := h.set(root, pid, up(3e6))
	require.NoError(t, err)
	require.Empty(t, answer.Warnings)
	h.mustSet(root, "user:12345", up(1e6))

	slow := make(chan struct{})
	before := fake.Calls("Stateless")
	fake.SetStateless(enforce.StatelessStats{Sockets: []enforce.StatelessSocket{{Cookie: 1, Nodes: []uint32{node.ID}}}}, slow)
	warned := make(chan []string, 1)
	go func() {
		answer, err := h.set(root, pid, up(2e6))
		if err != nil {
			t.Error(err)
		}
		warned <- answer.Warnings
	}()
	require.Eventually(t, func() bool { return fake.Calls("Stateless") > before }, 5*time.Second, time.Millisecond)
	lifted := make(chan error, 1)
	go func() {
		_, err := h.remove(root, "user:12345")
		lifted <- err
	}()
	select {
	case err := <-lifted:
		require.NoError(t, err)
	case <-time.After(5 * time.Second):
		t.Error("a request waits for the reading of another one")
	}
	close(slow)
	list := <-warned
	require.Len(t, list, 1)
	require.Contains(t, list[0], "1 socket has no room for state")
}
