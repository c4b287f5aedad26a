package account

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Look-ups are over when no answer has come for LookUpPatience, however many there are.
func TestLookUpsAreOver(t *testing.T) {
	var l LookUps
	now := time.Now()
	require.False(t, l.AreOver(now, 0))
	require.False(t, l.AreOver(now.Add(LookUpPatience-1), 0))
	require.False(t, l.AreOver(now.Add(LookUpPatience), 1), "one has come")
	require.False(t, l.AreOver(now.Add(2*LookUpPatience-1), 1))
	require.True(t, l.AreOver(now.Add(2*LookUpPatience), 1))
	require.True(t, IsAnswer(nil))
	require.True(t, IsAnswer(fmt.Errorf("%w: bob", ErrUnknown)))
	require.False(t, IsAnswer(fmt.Errorf("%w: bob", ErrUnanswered)))
	require.False(t, IsAnswer(ErrPending))
}
