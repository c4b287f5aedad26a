package trafficgen

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The man page names exactly the evasions that generated programs leave out.
func TestManPageNamesWhatIsLeftOut(t *testing.T) {
	text, err := os.ReadFile("../../../docs/man/netnice.1")
	require.NoError(t, err)
	_, chapter, found := strings.Cut(string(text), "\n.SH EVASION\n")
	require.True(t, found)
	chapter, _, _ = strings.Cut(chapter, "\n.SH ")
	var named, leftOut []string
	for _, item := range strings.Split(chapter, "\n.TP\n")[1:] {
		name, _, _ := strings.Cut(item, "\n")
		named = append(named, strings.TrimPrefix(name, ".B "))
	}
	for _, way := range LeftOut {
		leftOut = append(leftOut, way.Name)
	}
	require.Equal(t, leftOut, named)
}
