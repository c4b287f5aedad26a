package e2e

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// A program in C limits another by setpriority(2), as the netnice paper describes it, without privileges. The call
// keeps its other meanings.
func TestSetPriority(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestUserLimitsOwnProcess, TestTotal; the form of setpriority(2) is tested here only")
	t.Parallel()
	alone(t) // else another test's daemon may answer, and take the limit with it as it ends
	f := newField(upStage(t))
	uid := newUsers() + 21
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	call := filepath.Join(work, "setpriority")                         // a folder that others may read
	for _, standard := range []string{"-std=gnu11", "-D_GNU_SOURCE"} { // glibc's types differ
		args := []string{standard, "-Wall", "-Wextra", "-Werror", "-I", filepath.Join(root, "include"), "-o", call, filepath.Join(root, "examples/c/setpriority.c")}
		if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	x := f.send(testbed.SenderConfig{UID: uid})
	said := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(call, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		r := f.run(cmd, f.A)
		return r.out + r.err
	}
	if got := said(x.pid(), "2097152"); got != "2097152 bytes/s\n" {
		t.Errorf("set: %q", got)
	}
	f.holds("setpriority", testbed.Now(), 2<<20, x.port)
	if got := said(x.pid(), "0"); got != "0 bytes/s\n" {
		t.Errorf("lifted: %q", got)
	}
	f.free("lifted", testbed.Now(), freely, x.port)
}
