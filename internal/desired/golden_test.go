package desired_test

import (
	"cmp"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/desired/desiredtest"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/statefile"
)

// end is that of a limit of ten minutes.
var end = limit.End{BoottimeNS: 7e12, UnixNS: 1.9e18, SpanNS: 6e11}

// A file of version 13 is byte for byte what the releases with this version write.
func TestVersion13(t *testing.T) {
	want, err := os.ReadFile("testdata/version13.json")
	require.NoError(t, err)
	records := whole(t, []byte(desiredtest.Whole)).Nodes
	records[1].Timed = &[enforce.Owners]desired.Timed{enforce.OwnerUser: {Limit: limit.Limit{Up: 5000}, End: end}}
	for i := range records {
		if s := &records[i].Admin.Reserve; s.UntilNS != 0 {
			s.UntilNS, s.End = 0, end
		}
	}
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

// A file of version 12 has the end of a reservation on the wall clock alone. Its other records are those of version 13.
// The testdata is from the commit before this package existed.
func TestVersion12(t *testing.T) {
	dir, former := t.TempDir(), make(map[uint32]desired.Record)
	for _, version := range []string{"version12.json", "version13.json"} {
		text, err := os.ReadFile(filepath.Join("testdata", version))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, desired.FileName), text, 0o600))
		s, err := desired.Load(dir, "boot")
		require.NoError(t, err)
		require.NoError(t, s.Damage)
		for _, r := range s.Nodes {
			if version == "version12.json" {
				former[r.ID] = r
				continue
			}
			had := former[r.ID]
			if r.Admin.Reserve.End == end {
				is := had.Admin.Reserve.End
				require.InDelta(t, end.UnixNS, is.UnixNS, float64(time.Second))
				require.InDelta(t, is.UnixNS-time.Now().UnixNano(), is.BoottimeNS-desired.Now().BoottimeNS, float64(time.Minute))
				had.Admin.Reserve.End = end
			}
			require.Equal(t, had, r)
		}
	}
	require.Len(t, former, 8)

	s, err := desired.Load(dir, "another")
	require.NoError(t, err)
	for _, r := range s.Nodes {
		if r.Admin.Reserve.End != (limit.End{}) {
			require.InDelta(t, desired.Now().BoottimeNS+end.SpanNS, r.Admin.Reserve.End.BoottimeNS, float64(time.Minute), "no more is left than was asked for")
		}
	}
}
