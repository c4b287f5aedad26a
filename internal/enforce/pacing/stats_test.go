package pacing

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// Received bytes that are charged to a limit on both directions together do not count as sent by the node.
func TestChargeKeepsSentApart(t *testing.T) {
	var s enforce.NodeStats
	charge(&s, bpf.DirectionUp, bpf.Clock{Bytes: 100, SentBytes: 100, Held: 1})
	require.Equal(t, enforce.NodeStats{Bytes: 100, Held: 1}, s)

	charge(&s, bpf.DirectionTotal, bpf.Clock{Bytes: 6000, SentBytes: 40, Held: 2})
	require.Equal(t, enforce.NodeStats{Bytes: 100, TotalBytes: 6000, Held: 2}, s, "the limit on sending was there before")

	s = enforce.NodeStats{}
	charge(&s, bpf.DirectionTotal, bpf.Clock{Bytes: 6000, SentBytes: 40})
	require.Equal(t, enforce.NodeStats{Bytes: 40, TotalBytes: 6000}, s)
}
