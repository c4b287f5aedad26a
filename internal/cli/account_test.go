package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/account"
)

// twoPlaces is a machine with the user ann in its files and the user bob in a directory service.
func twoPlaces(t *testing.T) *account.Directory {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
		return path
	}
	return account.New(account.Options{
		Passwd: put("passwd", "ann:x:1000:1000::/home/ann:/bin/sh\n"),
		Group:  put("group", "ann:x:1000:\nwheel:x:10:ann\nstaff:x:20:bob\n"),
		Getent: []string{put("getent", `#!/bin/sh
case "$*" in
"passwd bob") echo "bob:*:70001:70000:Bob:/home/bob:/bin/sh" ;;
"group eves") echo "eves:*:70009:" ;;
"initgroups bob") echo "bob 70000 70009" ;;
*) exit 2 ;;
esac
`)},
	})
}

// The daemon looks up users for administrators only. The netnice of other users sends the number.
func TestUserHere(t *testing.T) {
	accounts := twoPlaces(t)
	for name, want := range map[string]string{"ann": "ann", "bob": "70001", "eve": "eve", "70001": "70001", "-x": "-x"} {
		s := userHere(api.Subject{Kind: api.KindUser, ID: name}, accounts)
		require.Equal(t, api.Subject{Kind: api.KindUser, ID: want}, s)
	}
}

// A session of inetd changes to a user of the files or of a directory service, with all groups of that user.
func TestCredentialsOf(t *testing.T) {
	accounts := twoPlaces(t)
	for _, c := range []struct {
		user, group string
		want        credentials
	}{
		{"ann", "", credentials{1000, 1000, []int{1000, 10}}},
		{"bob", "", credentials{70001, 70000, []int{70000, 20, 70009}}},
		{"bob", "wheel", credentials{70001, 10, []int{10, 70000, 20, 70009}}},
		{"ann", "eves", credentials{1000, 70009, []int{70009, 1000, 10}}},
	} {
		got, err := credentialsOf(t.Context(), accounts, c.user, c.group)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%s:%s", c.user, c.group)
	}
	_, err := credentialsOf(t.Context(), accounts, "eve", "")
	require.ErrorIs(t, err, account.ErrUnknown)
	_, err = credentialsOf(t.Context(), accounts, "ann", "nobodies")
	require.ErrorIs(t, err, account.ErrUnknown)
}
