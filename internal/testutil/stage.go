package testutil

import (
	"os"
	"testing"
)

// StageVariable names the environment variable that selects tests: "quick" (no root, no traffic), "test" (each
// behaviour once) or "all". Without the variable all tests run.
const StageVariable = "NETNICE_TEST_STAGE"

const stageQuick, stageTest = "quick", "test"

// SkipUnlessAll skips a test that runs in `make test-all` only. coveredBy names the tests that
// check the behaviour in `make test`.
func SkipUnlessAll(t testing.TB, coveredBy string) {
	t.Helper()
	if !All() {
		t.Skipf("in make test-all; meanwhile: %s", coveredBy)
	}
}

// Subset returns the cases of a table that `make test` runs, chosen by index, or all of them in
// `make test-all`.
func Subset[T any](cases []T, indices ...int) []T {
	if All() {
		return cases
	}
	var chosen []T
	for _, i := range indices {
		chosen = append(chosen, cases[i])
	}
	return chosen
}

// SubsetOf does the same with a table whose cases have names.
func SubsetOf[T any](cases map[string]T, names ...string) map[string]T {
	if All() {
		return cases
	}
	chosen := make(map[string]T, len(names))
	for _, name := range names {
		c, there := cases[name]
		if !there {
			panic("there is no case named " + name)
		}
		chosen[name] = c
	}
	return chosen
}

// All reports whether this run includes every case of a table and every repetition.
func All() bool {
	stage := os.Getenv(StageVariable)
	return stage != stageQuick && stage != stageTest
}
