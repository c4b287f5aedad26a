package identity

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/enforce"
)

func TestSubordinates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "subuid")
	list, err := Subordinates(path)
	require.NoError(t, err)
	require.Empty(t, list)
	require.NoError(t, os.WriteFile(path, []byte(`# comment:1:2
3000001:200000:65536
3000002:100000:65536
root:300000:65536
3000003:150000:65536
3000003:110000:5
no-such-user-here:400000:1
3000004:500000:0
3000004:x:1
3000004:4294967295:1
3000004:4294967294:1
3000004
`), 0o644))
	list, err = Subordinates(path)
	require.NoError(t, err)
	require.Equal(t, []enforce.Subordinates{
		{First: 100000, Last: 165535, Owner: 3000002},
		{First: 165536, Last: 215535, Owner: 3000003},
		{First: 215536, Last: 265535, Owner: 3000001},
		{First: 4294967294, Last: 4294967294, Owner: 3000004},
	}, list)
	for uid, want := range map[uint32]uint32{
		0: 0, 1000: 1000, 99999: 99999, 100000: 3000002, 165535: 3000002, 165536: 3000003,
		215536: 3000001, 265536: 265536, 300000: 300000, 4294967294: 3000004,
	} {
		require.Equal(t, want, enforce.OwnerOf(uid, list), uid)
	}
}
