package apiserver

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/auth"
)

// An administrator's request may start getent, another user's may not.
func TestOnlyAdministratorsStartLookUps(t *testing.T) {
	getent := filepath.Join(t.TempDir(), "getent")
	require.NoError(t, os.WriteFile(getent, []byte("#!/bin/sh\necho \"$2:*:70001:70000::/:/bin/sh\"\n"), 0o755))
	for name, c := range map[string]struct {
		by   auth.Actor
		want error
	}{
		"bob":       {bob, account.ErrUnknown},
		"eve":       {auth.Actor{UID: 1001}, account.ErrUnknown},
		"root":      {auth.Actor{}, nil},
		"of-admins": {auth.Actor{UID: 1002, Admin: true}, nil},
	} {
		accounts := account.New(account.Options{Passwd: filepath.Join(t.TempDir(), "none"), Getent: []string{getent}})
		handler := server{}.with(func(_ auth.Actor, r *http.Request) (any, error) {
			_, err := accounts.User(r.Context(), "carol")
			require.ErrorIs(t, err, c.want, name)
			return nil, nil
		})
		r := httptest.NewRequest(http.MethodGet, "/v1/status", nil)
		w := httptest.NewRecorder()
		handler(w, r.WithContext(auth.WithActor(r.Context(), c.by)))
		require.Equal(t, http.StatusOK, w.Code)
	}
}
