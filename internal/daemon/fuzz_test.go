package daemon

import (
	"log/slog"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/apiserver"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/testutil"
)

// Whatever a user requests, by whatever call, the limits of the administrator and of another user stay unchanged. All
// new limits are the user's own, on subjects that belong to the user.
func FuzzHostile(f *testing.F) {
	if testutil.Privileged() != nil {
		f.Skip("needs root, for processes of users")
	}
	const mallory, alice = 1017, 1018
	fake := new(enforcetest.Kernel)
	opts := testOptions(f, fake)
	opts.Logger = slog.New(slog.DiscardHandler)
	h := start(f, fake, opts)
	pids := map[string]string{}
	for name, uid := range map[string]uint32{"MINE": mallory, "ALSO": mallory, "ALICE": alice, "ROOT": 0} {
		cmd := exec.Command("sleep", "3600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
		require.NoError(f, cmd.Start())
		f.Cleanup(func() { end(cmd) })
		pids[name] = strconv.Itoa(cmd.Process.Pid)
	}
	h.mustSet(root, "user:"+strconv.Itoa(mallory), up(1e6))
	h.mustSet(root, "pid:"+pids["MINE"], up(2e6))
	h.mustSet(root, "host", up(3e6))
	h.mustSet(auth.Actor{UID: alice}, "pid:"+pids["ALICE"], up(4e6))
	type held struct {
		kind    enforce.Kind
		subject uint64
	}
	theirs := map[held][enforce.Directions]enforce.Ceiling{}
	specs, err := fake.Nodes()
	require.NoError(f, err)
	for _, s := range specs {
		owner := enforce.OwnerAdmin
		if s.Own {
			owner = enforce.OwnerUser // alice's
		}
		theirs[held{s.Kind, s.Subject}] = s.Ceilings[owner]
	}
	require.Len(f, theirs, 4)
	may := map[held]bool{{enforce.KindUser, mallory}: true}
	for _, name := range []string{"MINE", "ALSO"} {
		pid, err := strconv.ParseUint(pids[name], 10, 64)
		require.NoError(f, err)
		may[held{enforce.KindTree, pid}] = true
	}
	words := strings.NewReplacer("MINE", pids["MINE"], "ALSO", pids["ALSO"], "ALICE", pids["ALICE"], "ROOT", pids["ROOT"])
	api := apiserver.Handler(h.Daemon)

	for _, line := range []string{
		"PUT /v1/limits", "DELETE /v1/limits?subject=pid:MINE", "DELETE /v1/limits?subject=user:1017", "DELETE /v1/limits?subject=host",
		"DELETE /v1/limits?subject=pid:ALICE", "POST /v1/down", "GET /v1/nodes?subject=pid:ROOT", "GET /v1/nodes", "GET /v1/status", "GET /v1/rules/test?pid=ALICE",
	} {
		for _, body := range []string{
			`{"subject":{"kind":"pid","id":"MINE"},"wish":{"up_bytes_per_sec":0,"weight":0}}`,
			`{"subject":{"kind":"user","id":"1017"},"wish":{"up_bytes_per_sec":9223372036854775807,"burst_ns":60000000000,"input_meter":false}}`,
			`{"subject":{"kind":"pid","id":"+MINE"},"wish":{"total_bytes_per_sec":5,"loopback":false},"scope":true}`,
			`{"subject":{"kind":"pid","id":"ALSO"},"wish":{"down_bytes_per_sec":5},"dry_run":true}`,
			`{"subject":{"kind":"pid","id":"1"},"wish":{"weight":1}}`,
			`{"subject":{"kind":"cgroup","id":"/../.."},"wish":{"up_bytes_per_sec":1}}`,
			`{"subject":{"kind":"unit","id":"x"},"wish":{"up_bytes_per_sec":1}}`,
		} {
			f.Add(line, body)
		}
	}
	f.Fuzz(func(t *testing.T, line, body string) {
		method, target, _ := strings.Cut(words.Replace(line), " ")
		if !strings.HasPrefix(target, "/v1/") || strings.ContainsAny(target, " \r\n\x00") || strings.ContainsAny(method, " \r\n:") || method == "" {
			return
		}
		r := httptest.NewRequest("GET", "/", strings.NewReader(words.Replace(body)))
		u, err := r.URL.Parse(target)
		if err != nil {
			return
		}
		r.Method, r.URL = method, u
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r.WithContext(auth.WithActor(r.Context(), auth.Actor{UID: mallory, GID: mallory, PID: 7})))
		require.NotEqual(t, 500, w.Code, "%s", w.Body)
		specs, err := fake.Nodes()
		require.NoError(t, err)
		have := 0
		for _, s := range specs {
			at := held{s.Kind, s.Subject}
			want, there := theirs[at]
			switch {
			case there && s.Own: // alice's
				require.Equal(t, want, s.Ceilings[enforce.OwnerUser])
				have++
			case there:
				require.Equal(t, want, s.Ceilings[enforce.OwnerAdmin])
				have++
			default:
				require.True(t, s.Own, "%+v", s)
			}
			scope := s.Kind == enforce.KindCgroup && s.Own // a scope of mallory's
			if !may[at] && !scope {
				require.True(t, there, "%+v", s)
				if s.Kind == enforce.KindHost {
					require.Zero(t, s.Ceilings[enforce.OwnerUser])
				}
			}
			require.LessOrEqual(t, s.Weight, uint32(limit.DefaultWeight))
		}
		require.Equal(t, len(theirs), have)
		require.False(t, fake.IsDown())
	})
}
