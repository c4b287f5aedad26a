package sparethreads

import (
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func threads(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	return len(list)
}

// Goroutines that wait in system calls take the threads that were made, and the runtime makes no others.
func TestMake(t *testing.T) {
	const count = 40
	require.NoError(t, Make(count))
	made := threads(t)
	require.GreaterOrEqual(t, made, count)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	fd := int(r.Fd())
	var began, ended sync.WaitGroup
	began.Add(count)
	for range count {
		ended.Go(func() {
			began.Done()
			_, _ = unix.Read(fd, make([]byte, 1))
		})
	}
	began.Wait()
	require.LessOrEqual(t, threads(t), made+2, "the runtime's own may come")
	require.NoError(t, w.Close())
	ended.Wait()
	require.NoError(t, r.Close())
}
