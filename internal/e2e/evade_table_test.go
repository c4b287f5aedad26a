package e2e

import (
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testutil"
)

// Many processes that share one large table of open files do not make a command take long: it is gone through once
// for all that are limited alike. What any of them sends is limited.
func TestEvadeBySharedTable(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestEachTable")
	t.Parallel()
	f := newField(upStage(t))
	a := f.ports + 1
	x := f.python(options{in: f.A}, `
import ctypes, platform, resource
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
files = min(100000, most - 100)
CLONE_FILES = 0x400
clone = {"x86_64": 56, "aarch64": 220}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
s = connect(sys.argv[1])
for _ in range(files):
    os.dup(s.fileno())
read, write = os.pipe()
for i in range(300 * 100000 // files):
    pid = libc.syscall(clone, CLONE_FILES | signal.SIGCHLD, 0, 0, 0, 0)
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone")
    if pid == 0:
        if i == 150:
            say("ready")
            flood(s)
        os.read(read, 1)
        os._exit(0)
wait()
`, f.to(a))
	x.read("ready")
	begin := time.Now()
	at := f.must("set", "--pid", x.pid(), "--up", "5MB/s")
	// 30 million open files took 2 s and more
	if took := time.Since(begin); took > time.Second {
		t.Errorf("set took %v", took)
	}
	f.holds("a table that hundreds share", at, 5e6, a)
	f.free("lifted", f.must("unset", "--pid", x.pid()), freely, a)
}
