package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/testutil"
)

// clientOf returns a client whose connections belong to another user. A thread that has become that user, and that ends
// with it, makes them.
func clientOf(uid int, socket string) *http.Client {
	dial := func(context.Context, string, string) (net.Conn, error) {
		type result struct {
			c   net.Conn
			err error
		}
		done := make(chan result)
		go func() {
			runtime.LockOSThread() // and never unlock: the thread ends
			id := uintptr(uid)
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, id, id, id); errno != 0 {
				done <- result{nil, errno}
				return
			}
			c, err := net.Dial("unix", socket)
			done <- result{c, err}
		}()
		r := <-done
		return r.c, r.err
	}
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
}

// TestUsersOverTheSocket covers the whole way over the socket with real credentials.
func TestUsersOverTheSocket(t *testing.T) {
	testutil.RequireRoot(t)
	const bob, eve = 41001, 41002
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	proc := exec.Command("sleep", "60")
	proc.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: bob, Gid: bob}}
	require.NoError(t, proc.Start())
	t.Cleanup(func() { end(proc) })

	call := func(uid int, method, path, body string) (int, api.Error) {
		req, err := http.NewRequest(method, "http://netnice"+path, bytes.NewBufferString(body))
		require.NoError(t, err)
		resp, err := clientOf(uid, h.opts.SocketPath).Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		var fault api.Error
		if resp.StatusCode != http.StatusOK {
			require.NoError(t, json.NewDecoder(resp.Body).Decode(&fault))
		}
		return resp.StatusCode, fault
	}
	put := fmt.Sprintf(`{"subject":{"kind":"pid","id":"%d"},"wish":{"up_bytes_per_sec":1000000}}`, proc.Process.Pid)

	status, fault := call(eve, "PUT", "/v1/limits", put)
	require.Equal(t, http.StatusForbidden, status)
	require.Equal(t, fmt.Sprintf("sudo netnice set --pid %d --up 1MB/s", proc.Process.Pid), fault.Hint)
	status, _ = call(bob, "PUT", "/v1/limits", put)
	require.Equal(t, http.StatusOK, status)
	status, _ = call(eve, "DELETE", "/v1/limits?subject="+pidSubject(proc), "")
	require.Equal(t, http.StatusForbidden, status)
	status, _ = call(eve, "GET", "/v1/nodes", "")
	require.Equal(t, http.StatusOK, status, "everybody sees all nodes")
	status, _ = call(bob, "PUT", "/v1/limits", strings.Replace(put, fmt.Sprintf(`"pid","id":"%d"`, proc.Process.Pid), fmt.Sprintf(`"user","id":"%d"`, bob), 1))
	require.Equal(t, http.StatusOK, status)
	status, _ = call(bob, "POST", "/v1/down", "")
	require.Equal(t, http.StatusForbidden, status)
	status, _ = call(0, "DELETE", "/v1/limits?subject="+pidSubject(proc), "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, 1, h.count())
}
