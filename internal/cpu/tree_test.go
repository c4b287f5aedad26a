package cpu

import (
	"bufio"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Both functions find the same tree. A process that does not exist has no tree.
func TestTree(t *testing.T) {
	cmd := as("nest")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	pid := started(t, cmd)
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	byParents, err := treeByParents(pid)
	require.NoError(t, err)
	require.Len(t, byParents, 2)
	require.Equal(t, pid, byParents[0])
	if byChildren, ok := treeByChildren(pid); ok {
		require.Equal(t, byParents, byChildren)
	}
	own, err := Tree(os.Getpid())
	require.NoError(t, err)
	require.True(t, slices.Contains(own, byParents[1]))
	none, err := Tree(1 << 22)
	require.NoError(t, err)
	require.Empty(t, none)
}
