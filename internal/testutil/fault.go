package testutil

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
)

// RequireCode fails the test unless an error is an answer with that code and a remedy.
func RequireCode(t testing.TB, code string, err error) {
	t.Helper()
	_ = RequireFault(t, code, err)
}

// RequireFault is RequireCode for tests that also check the rest of the answer.
func RequireFault(t testing.TB, code string, err error) *api.Error {
	t.Helper()
	var e *api.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, code, e.Code, "%v", err)
	require.NotEmpty(t, e.Hint, "no remedy: %v", err)
	return e
}
