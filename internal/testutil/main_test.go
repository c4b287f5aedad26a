package testutil

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	MaybeRunTraffic()
	Supervise()
	os.Exit(m.Run())
}
