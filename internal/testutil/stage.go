package testutil

import "os"

// StageVariable names the environment variable that says which tests run: "quick" (no
// root, no traffic), "test" (each behaviour once) or "all", which is also meant by none.
const StageVariable = "NETNICE_TEST_STAGE"

const stageQuick, stageTest = "quick", "test"

// OnlyInAll skips a test that `make test` leaves to `make test-all`, and says where the
// behaviour is tested meanwhile.
func OnlyInAll(t TB, elsewhere string) {
	t.Helper()
	if !All() {
		t.Skipf("in make test-all; meanwhile: %s", elsewhere)
	}
}

// Picked is some of the cases of a table, by index: those that `make test` runs. In
// `make test-all` it is all of them.
func Picked[T any](cases []T, indices ...int) []T {
	if All() {
		return cases
	}
	var picked []T
	for _, i := range indices {
		picked = append(picked, cases[i])
	}
	return picked
}

// All says whether everything is to be tested: every case of a table, every repetition.
func All() bool {
	stage := os.Getenv(StageVariable)
	return stage != stageQuick && stage != stageTest
}
