package testutil

import (
	"testing"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
)

// MustPair is testbed.NewPair for tests: it requires root, fails the test on an error,
// and removes the pair when the test ends.
func MustPair(t testing.TB) *testbed.Pair {
	t.Helper()
	return must(t, testbed.NewPair)
}

// MustPairInOrder is testbed.NewPairInOrder for tests, as MustPair is NewPair.
func MustPairInOrder(t testing.TB) *testbed.Pair {
	t.Helper()
	return must(t, testbed.NewPairInOrder)
}

// MustDistantPair is testbed.NewDistantPair for tests, as MustPair is NewPair.
func MustDistantPair(t testing.TB, c relay.Config) *testbed.Pair {
	t.Helper()
	return must(t, func() (*testbed.Pair, error) { return testbed.NewDistantPair(c) })
}

func must(t testing.TB, open func() (*testbed.Pair, error)) *testbed.Pair {
	t.Helper()
	RequireRoot(t)
	p, err := open()
	if err != nil {
		t.Fatalf("make a pair of namespaces: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Logf("remove a pair of namespaces: %v", err)
		}
	})
	return p
}
