package vm

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHelper is no test: the guest runs it as the program under test.
func TestHelper(t *testing.T) {
	switch os.Getenv("VM_HELPER") {
	case "":
		return // not in the guest
	case "speak":
		input, err := os.ReadFile("/data/in")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile("/tmp/out", append(input, 0, '\n', 0xA5), 0o600))
		_, err = os.Stat("/sys/kernel/btf/vmlinux")
		require.NoError(t, err)
		_, err = os.Stat("/sys/fs/cgroup/cgroup.procs")
		require.NoError(t, err)
		_, _ = os.Stdout.WriteString("to stdout\r\n")
		_, _ = os.Stderr.WriteString("to stderr\n")
		os.Exit(42)
	case "hang":
		time.Sleep(time.Hour)
	}
}

func TestGuest(t *testing.T) {
	Require(t)
	input := filepath.Join(t.TempDir(), "in")
	require.NoError(t, os.WriteFile(input, []byte("carried in"), 0o600))
	self, err := CompileTest(t.Context(), ".", t.TempDir())
	require.NoError(t, err)
	c := Config{
		Program: self,
		Args:    []string{"-test.run=^TestHelper$"},
		Files:   map[string]string{"/data/in": input},
		Fetch:   []string{"/tmp/out", "/tmp/none"},
	}

	t.Run("output, status and files come back", func(t *testing.T) {
		c.Env = []string{"VM_HELPER=speak"}
		res, err := Run(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, 42, res.ExitCode, "%s%s", res.Stdout, res.Stderr)
		require.Equal(t, "to stdout\r\n", string(res.Stdout))
		require.Equal(t, "to stderr\n", string(res.Stderr))
		require.Equal(t, map[string][]byte{"/tmp/out": []byte("carried in\x00\n\xA5")}, res.Files)
		require.Contains(t, res.Notes, "/tmp/none: open /tmp/none: no such file or directory")
		require.Positive(t, res.Boot)
	})
	t.Run("a program that hangs is ended and says where", func(t *testing.T) {
		c.Env, c.Timeout = []string{"VM_HELPER=hang"}, 2*time.Second
		res, err := Run(t.Context(), c)
		require.ErrorIs(t, err, ErrGuest)
		require.ErrorContains(t, err, "not done after 2 s")
		require.Contains(t, string(res.Stderr), "TestHelper")
	})
	t.Run("a kernel that does not come up is an error with its last words", func(t *testing.T) {
		c.Append, c.Timeout = "rdinit=/nonexistent init=/nonexistent", time.Minute
		_, err := Run(t.Context(), c)
		require.ErrorIs(t, err, ErrGuest)
		require.ErrorContains(t, err, "Kernel panic")
	})
}
