package netdevice

import (
	"os"
	"testing"

	"github.com/netnice/netnice/internal/testutil"
)

func TestMain(m *testing.M) {
	testutil.Supervise()
	os.Exit(m.Run())
}
