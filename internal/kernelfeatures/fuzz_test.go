package kernelfeatures

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// A user's own mount (by FUSE) is read as that mount, whatever its name is, and hides no other mount. No text of a
// mount table makes the parser crash.
func FuzzMounts(f *testing.F) {
	f.Add("/home/bob/mnt", "sshfs#bob@host:/", lineV2)
	f.Add("/home/bob/a b\tc\nd\\e#f", "", lineV1+lineUnified)
	f.Add("/home/bob/\u00a0/\u2003\u0085\r", "x - bpf bpf rw", lineInside+lineBPFElse)
	f.Add("/sys/fs/bpf \\040", "bpf", "garbage\n - \n36 35 98:0 / - bpf\n")
	// written escapes a name like the kernel does.
	written := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`, "#", `\043`)
	f.Fuzz(func(t *testing.T, at, source, others string) {
		if _, err := readMounts(fstest.MapFS{"proc/self/mountinfo": {Data: []byte(others)}}); err != nil {
			require.ErrorContains(t, err, "read mounts")
		}
		at, source = "/"+strings.ReplaceAll(at, "\x00", ""), strings.ReplaceAll(source, "\x00", "")
		if len(at)+len(source) > 4096 {
			return // longer than a path
		}
		line := "40 24 0:50 / " + written.Replace(at) + " rw,nosuid,nodev shared:7 - fuse.sshfs " + written.Replace(source) + " rw,user_id=1000\n"
		mounts, err := readMounts(fstest.MapFS{"proc/self/mountinfo": {Data: []byte(line + lineBPF)}})
		require.NoError(t, err)
		require.Equal(t, []mount{
			{kind: "fuse.sshfs", at: at, root: "/", with: "rw,user_id=1000"},
			{kind: "bpf", at: "/sys/fs/bpf", root: "/", with: "rw,mode=700"},
		}, mounts)
	})
}
