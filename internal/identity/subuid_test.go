package identity

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/enforce"
)

func TestSubordinates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "subuid")
	var asked []string
	uidOf := func(name string) (uint32, error) {
		asked = append(asked, name)
		switch name {
		case "root":
			return 0, nil
		case "no-such-user-here":
			return 0, account.ErrUnknown
		case "later":
			return 0, account.ErrPending
		}
		return account.ParseID(name)
	}
	list, missing, err := Subordinates(path, uidOf)
	require.NoError(t, err)
	require.NoError(t, missing)
	require.Empty(t, list)
	require.NoError(t, os.WriteFile(path, []byte(`# comment:1:2
3000001:200000:65536
3000002:100000:65536
root:300000:65536
3000003:150000:65536
3000003:110000:5
no-such-user-here:400000:1
later:400001:1
3000004:500000:0
3000004:x:1
3000004:4294967295:1
3000004:4294967294:1
3000004
`), 0o644))
	list, missing, err = Subordinates(path, uidOf)
	require.NoError(t, err)
	require.ErrorIs(t, missing, account.ErrPending)
	require.Equal(t, []string{"3000001", "3000002", "root", "3000003", "no-such-user-here", "later", "3000004"}, asked, "once each, of lines that count")
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
