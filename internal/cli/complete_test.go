package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A user who types does not wait for a daemon that does not answer.
func TestCompletionDoesNotWait(t *testing.T) {
	a := silentDaemon(t)
	begin := time.Now()
	words, directive := a.completeSubjects(nil, nil, "us")
	require.Empty(t, words)
	require.Equal(t, noFiles, directive)
	require.Less(t, time.Since(begin), 5*time.Second)
}
