package identity

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOuterSlice(t *testing.T) {
	for cgroup, want := range map[string]string{
		"/": "",
		"/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope": "user-1000.slice",
		"/user.slice/user-1000.slice/session-1.scope":                     "user-1000.slice",
		"/system.slice/web.service":                                       "system.slice",
		"/init.scope":                                                     "",
	} {
		require.Equal(t, want, OuterSlice(cgroup), cgroup)
	}
}

func TestSliceFolder(t *testing.T) {
	for slice, want := range map[string]string{
		"":                "/",
		"-.slice":         "/",
		"system.slice":    "/system.slice/",
		"user-1000.slice": "/user.slice/user-1000.slice/",
	} {
		require.Equal(t, want, SliceFolder(slice), slice)
	}
}

// The owner of a cgroup names those inside it.
func TestSystemNamed(t *testing.T) {
	users := map[string]bool{"/user.slice/user-1.slice/user@1.service": true, "/machines/m": true}
	for cgroup, want := range map[string]string{
		"":                                 "",
		"/":                                "/",
		"/system.slice/x.service":          "/system.slice/x.service",
		"/machines/m":                      "/machines/m",
		"/machines/m/system.slice/a/b":     "/machines/m",
		"/user.slice/user-1.slice/s.scope": "/user.slice/user-1.slice/s.scope",
		"/user.slice/user-1.slice/user@1.service/app.slice/x.service": "/user.slice/user-1.slice/user@1.service",
	} {
		require.Equal(t, want, systemNamed(cgroup, func(dir string) bool { return !users[dir] }), cgroup)
	}
	require.Empty(t, systemNamed("/a", func(string) bool { return false }))
	require.Empty(t, systemNamed("/", func(string) bool { return false }))
}
