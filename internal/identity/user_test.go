package identity

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/enforce"
)

// The resolver finds a directory's users by name and by number. It distinguishes a directory that does not answer from
// a user that does not exist. A caller who may start no process gets answers only from known accounts.
func TestUsersOfADirectory(t *testing.T) {
	dir := t.TempDir()
	getent, none := filepath.Join(dir, "getent"), filepath.Join(dir, "none")
	require.NoError(t, os.WriteFile(getent, []byte(`#!/bin/sh
case "$2" in
bob|70001) echo "bob:*:70001:70000:Bob:/home/bob:/bin/sh" ;;
staff) echo "staff:*:70000:bob" ;;
broken) exit 3 ;;
*) exit 2 ;;
esac
`), 0o755))
	r := newResolver(t, Options{Accounts: account.New(account.Options{Passwd: none, Group: none, Getent: []string{getent}})})
	frugal := account.WithoutAsking(t.Context())
	user := func(id string) api.Subject { return api.Subject{Kind: api.KindUser, ID: id} }

	_, err := r.Resolve(frugal, user("bob"))
	requireCode(t, api.CodeNotFound, err)
	res, err := r.Resolve(frugal, user("70001"))
	require.NoError(t, err)
	require.Equal(t, "70001", res.Name)

	byName, err := resolve(t, r, "user:bob")
	require.NoError(t, err)
	require.Equal(t, Resolved{Subject: user("bob"), Kind: enforce.KindUser, Key: 70001, UID: 70001, Name: "bob"}, byName)
	byUID, err := resolve(t, r, "user:70001")
	require.NoError(t, err)
	require.Equal(t, byName, byUID)
	for _, id := range []string{"bob", "70001"} {
		res, err = r.Resolve(frugal, user(id))
		require.NoError(t, err)
		require.Equal(t, byName, res, "known by now")
	}

	_, err = resolve(t, r, "user:broken")
	requireCode(t, api.CodeInternal, err)
	require.ErrorContains(t, err, "cannot be looked up")
	require.True(t, IsNotFound(err), "a limit that stands on it is found by its name")
	for _, id := range []string{"eve", "-x", "4294967295"} {
		_, err = resolve(t, r, "user:"+id)
		requireCode(t, api.CodeNotFound, err)
	}
	gid, err := r.Group(t.Context(), "staff")
	require.NoError(t, err)
	require.EqualValues(t, 70000, gid)
	for _, name := range []string{"eves", "4294967295", "-1"} {
		_, err = r.Group(t.Context(), name)
		require.ErrorIs(t, err, account.ErrUnknown)
	}
}
