package probe_test

import (
	"os"
	"testing"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

func TestMain(m *testing.M) {
	testbed.MaybeRunTraffic()
	testutil.Supervise()
	os.Exit(m.Run())
}
