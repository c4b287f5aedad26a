package probe_test

import (
	"os"
	"testing"

	"github.com/netnice/netnice/internal/testutil"
)

func TestMain(m *testing.M) {
	testutil.MaybeRunTraffic()
	testutil.Supervise()
	os.Exit(m.Run())
}
