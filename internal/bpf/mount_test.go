package bpf

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testutil"
)

// Several processes start at once where no BPF file system is mounted. Together they mount one, and all have their
// folder in it. The process that mounted it unmounts it if it is the last to leave.
func TestMountedOnce(t *testing.T) {
	testutil.RequireRoot(t)
	const inner, parent = "NETNICE_TEST_MOUNTS", "/sys/fs/bpf"
	if os.Getenv(inner) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestMountedOnce$", "-test.v")
		cmd.Env = append(os.Environ(), inner+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return
	}
	require.NoError(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	for {
		there, err := isBPFFS(parent)
		require.NoError(t, err)
		if !there {
			break
		}
		require.NoError(t, unix.Unmount(parent, unix.MNT_DETACH))
	}
	const programs = 16
	for range 10 {
		folder := func(i int) string { return filepath.Join(parent, fmt.Sprintf("netnice-%d", i)) }
		errs := make([]error, programs)
		var wg sync.WaitGroup
		for i := range programs {
			wg.Go(func() { errs[i] = ensurePinDir(folder(i)) })
		}
		wg.Wait()
		mounts, err := os.ReadFile("/proc/self/mounts")
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(mounts), " "+parent+" bpf "))
		owners := 0
		for i := range programs {
			require.NoError(t, errs[i])
			require.DirExists(t, folder(i))
			if _, err := os.Stat(filepath.Join(folder(i), mounted)); err == nil {
				owners++
			}
		}
		require.Equal(t, 1, owners)
		for i := range programs {
			wg.Go(func() { errs[i] = RemovePins(folder(i)) })
		}
		wg.Wait()
		for i := range programs {
			require.NoError(t, errs[i])
		}
		_ = unix.Unmount(parent, 0) // needed if the process that mounted it was not the last
	}
}

// A daemon that may not unmount, such as the service, still removes its limits.
func TestUnmountIsForbidden(t *testing.T) {
	dir := t.TempDir()
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread has lost its capabilities, and ends
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			result <- err
			return
		}
		result <- unmount(dir)
	}()
	if err := <-result; err != nil {
		t.Error(err)
	}
}
