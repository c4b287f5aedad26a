package desired_test

import (
	"cmp"
	"log/slog"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/desired/desiredtest"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/statefile"
)

// A file of version 12 is byte for byte what the releases with this version write. The testdata is from the commit
// before this package existed.
func TestVersion12(t *testing.T) {
	want, err := os.ReadFile("testdata/version12.json")
	require.NoError(t, err)
	records := whole(t, []byte(desiredtest.Whole)).Nodes
	records[1].Timed = &[enforce.Owners]desired.Timed{enforce.OwnerUser: {
		Limit: limit.Limit{Up: 5000}, EndBoottimeNS: 7e12, EndUnixNS: 1.9e18, SpanNS: 6e11,
	}}
	isFirst := func(r desired.Record) bool { return r.ID <= 6 }
	first := slices.DeleteFunc(slices.Clone(records), func(r desired.Record) bool { return !isFirst(r) })
	slices.SortFunc(first, func(a, b desired.Record) int { return cmp.Or(cmp.Compare(b.Kind, a.Kind), cmp.Compare(a.ID, b.ID)) })
	now := desired.Content{NextID: 22, Count: len(first), Records: slices.Values(first)}
	log := slog.New(slog.DiscardHandler)
	file := desired.NewFile(desired.FileOptions{
		Folder: statefile.New(statefile.Options{Dir: t.TempDir(), Log: log}), BootID: "boot", Log: log,
		Content: func() desired.Content { return now },
	})
	require.NoError(t, file.Save())
	for i, r := range records {
		if !isFirst(r) {
			now.NextID++
			require.NoError(t, file.Append(i%2 == 0, desired.Change{Node: &r}))
		}
	}
	require.NoError(t, file.Append(false, desired.Change{Gone: 3}, desired.Change{Gone: 1}))
	text, err := os.ReadFile(file.Path())
	require.NoError(t, err)
	require.Equal(t, string(want), string(text))
	require.Len(t, whole(t, want).Nodes, 8)
}
