package clock

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// The property tests use the same cases every time, so that a result depends only on the code. With NETNICE_TEST_LONG=1
// they use other cases each time. A failure prints the seed.
func TestMain(m *testing.M) {
	flag.Parse()
	seed := flag.Lookup("rapid.seed")
	if seed.Value.String() == seed.DefValue && os.Getenv("NETNICE_TEST_LONG") != "1" {
		if err := seed.Value.Set("20261122"); err != nil {
			fmt.Fprintln(os.Stderr, "set the seed of the property tests:", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}
