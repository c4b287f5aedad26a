package cli

import (
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A command notices that its reader has gone without printing anything.
func TestUntilReaderGone(t *testing.T) {
	in, out, err := os.Pipe()
	require.NoError(t, err)
	defer out.Close()
	app, _ := testApp()
	app.Out = out
	ctx, done := app.untilReaderGone(t.Context())
	defer done()
	_, err = out.WriteString("what the reader has not read yet\n")
	require.NoError(t, err)
	require.NoError(t, ctx.Err())
	require.NoError(t, in.Close())
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("nobody noticed that the reader has gone")
	}
}

func TestNoReaderIsNoFault(t *testing.T) {
	in, out, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, in.Close())
	defer out.Close()
	_, err = out.WriteString("x")
	require.Error(t, err)
	app, said := testApp()
	require.Zero(t, app.report(fmt.Errorf("print an event: %w", err)))
	require.Empty(t, said.String())
	require.Equal(t, exitFailed, app.report(fmt.Errorf("print an event: %w", io.ErrShortWrite)))
	require.NotEmpty(t, said.String())
}
