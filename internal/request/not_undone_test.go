package request

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
)

func TestNotUndone(t *testing.T) {
	full := &api.Error{Code: api.CodeConflict, Message: "full", Hint: "netnice ls"}
	require.NoError(t, NotUndone(nil, errFailed), "a dry run")
	require.Same(t, error(full), NotUndone(full), "nothing is left")

	var answer *api.Error
	err := NotUndone(full, errors.New("limit pid:7: refused"), errors.New("lift pid:8: refused"))
	require.ErrorAs(t, err, &answer)
	require.Equal(t, []string{"limit pid:7: refused", "lift pid:8: refused"}, answer.NotUndone)
	require.Equal(t, api.CodeConflict, answer.Code)
	require.Equal(t, "full; not all of it was undone: limit pid:7: refused; lift pid:8: refused", answer.Message)
	require.Equal(t, againHint+"\nnetnice ls", answer.Hint, "each remedy once, those for what is left first")
	require.Equal(t, "full", full.Message, "the cause stays as it was")
	require.ErrorIs(t, err, full)

	require.NoError(t, StepBack("netnice ls", "take it back", nil))
	err = NotUndone(unix.EIO, StepBack("netnice fair --leave 7", "pid:7 stays", errFailed))
	require.ErrorAs(t, err, &answer)
	require.Equal(t, api.Error{
		Code: api.CodeInternal, Message: "input/output error; not all of it was undone: pid:7 stays: failed",
		Hint: "netnice fair --leave 7", NotUndone: []string{"pid:7 stays: failed"}, Cause: unix.EIO,
	}, *answer)
}
