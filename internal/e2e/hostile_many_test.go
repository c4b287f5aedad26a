package e2e

import (
	"testing"
	"time"
)

// A user has more than a million files open, or very many descriptors of one io_uring ring with very many file
// slots. Limits on others and on the user itself can still be set.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	f := newField(upStage(t))
	for name, text := range map[string]string{
		"files": `
for _ in range(most):
    os.dup(2)
for _ in range(1_200_000 // most):
    if os.fork() == 0:
        signal.pause()
`,
		"rings": `
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
ring = libc.syscall(425, 8, ctypes.create_string_buffer(120))  # io_uring_setup
places = (ctypes.c_int * most)(*[-1] * most)
if ring < 0 or libc.syscall(427, ring, 2, places, most):  # IORING_REGISTER_FILES
    raise OSError(ctypes.get_errno(), "io_uring")
for _ in range(most):
    os.dup(ring)
`,
	} {
		x := f.python(options{in: f.A}, `
import resource
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
most = min(hard, 20_000) - 100
resource.setrlimit(resource.RLIMIT_NOFILE, (most + 100, hard))
`+text+`
say("ready")
signal.pause()
`)
		x.read("ready")
		begin := time.Now()
		f.must("set", "--user", itoa(spare+8), "--up", "1MB/s")
		f.must("set", "--pid", x.pid(), "--up", "1MB/s")
		took := time.Since(begin)
		t.Logf("%s: two limits took %v", name, took)
		if took > 8*time.Second {
			t.Errorf("%s: two limits took %v", name, took)
		}
		f.must("unset", "--user", itoa(spare+8))
		x.close()
	}
}
