package groups

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
)

// The hint for a group's first command is the whole command, with the processes that were named.
func TestRemedyOfAGroupWithoutARate(t *testing.T) {
	request := api.SetRequest{Subject: api.Subject{Kind: api.KindGroup, ID: "fair-7"}, Members: []api.Member{{PID: 7}, {PID: 8, Weight: 300}}}
	require.Equal(t, "netnice fair --total 10MB/s 7 8=300", fairCommand(request))
	request.Subject.ID = "backups"
	require.Equal(t, "netnice fair --group backups --total 10MB/s 7 8=300", fairCommand(request))
}
