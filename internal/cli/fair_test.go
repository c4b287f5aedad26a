package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/identity"
)

// twoUsers is a machine where a user, their child process, and another user run curl.
type twoUsers struct{ userAlone }

func (twoUsers) Processes() ([]identity.ProcessInfo, error) {
	return []identity.ProcessInfo{
		{PID: 70, Parent: 1, UID: 1000, Comm: "curl"},
		{PID: 71, Parent: 70, UID: 1000, Comm: "curl"},
		{PID: 72, Parent: 1, UID: 2000, Comm: "curl"},
	}, nil
}

// The command names processes of the name that are no members, with the reason.
func TestMembersLeftOut(t *testing.T) {
	a := &App{System: twoUsers{}}
	members, notes, err := a.members(t.Context(), []string{"name:curl", "70=300"})
	require.NoError(t, err)
	require.Equal(t, []api.Member{{PID: 70, Weight: 300}}, members)
	require.Equal(t, []string{
		"name:curl: 1 process of other users left out: sudo netnice ... means them, too",
		"name:curl: 1 more inside are no members of their own: they have part in the share of the process that started them",
		"process 70 is named twice, and is one member",
	}, notes)
}
