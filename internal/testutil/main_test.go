package testutil

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	MaybeRunTraffic()
	os.Exit(m.Run())
}
