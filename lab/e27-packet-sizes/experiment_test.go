package e27

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/capture"
)

// A packet counts in the column of its interval and in the row of its frame's size.
func TestCount(t *testing.T) {
	at := func(after time.Duration, bytes int) capture.Packet {
		return capture.Packet{T: testbed.Instant(after), Bytes: bytes}
	}
	r := count(setup{line: true, write: 2048, perByte: slower, n: 100}, []capture.Packet{
		at(0, 1500), at(50*time.Microsecond, 652), at(180*time.Microsecond, 1500), at(230*time.Microsecond, 1500), at(2*time.Millisecond, 452),
	})
	require.Equal(t, map[int]counts{7: {1, 0, 0}, 16: {1, 1, 0}, 5: {0, 0, 1}}, r.Sizes)
	require.Equal(t, []int{4, 2, 2, 2, 1, 1}, []int{r.Packets, r.Soon, r.Full, r.Short, r.FullSoon, r.ShortSoon})
	require.True(t, r.Calculates)
}
