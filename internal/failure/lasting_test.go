package failure

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFailureIsLoggedOnceWhileItLasts(t *testing.T) {
	var out bytes.Buffer
	var l Lasting
	logged := func(err error) int {
		out.Reset()
		l.Note(slog.New(slog.NewTextHandler(&out, nil)), "files were not read", err)
		return strings.Count(out.String(), "files were not read")
	}
	full, gone := errors.New("full"), errors.New("gone")
	for i, step := range []struct {
		err  error
		want int
	}{{nil, 0}, {full, 1}, {full, 0}, {gone, 1}, {full, 1}, {nil, 0}, {full, 1}} {
		require.Equal(t, step.want, logged(step.err), "step %d", i)
	}
}
