// Package sparethreads has the Go runtime make threads in advance. A program of any user can take all of the machine's
// process numbers for some seconds. If the runtime needs another thread then, it ends the process.
package sparethreads

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Make makes count threads, which the runtime keeps, and takes for goroutines that wait in a system call.
func Make(count int) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make spare threads: %w", err)
	}
	fd := int(r.Fd()) // and it blocks from now on: each that reads keeps a thread
	var waiting, ended sync.WaitGroup
	waiting.Add(count)
	for range count {
		ended.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			waiting.Done()
			_, _ = unix.Read(fd, make([]byte, 1)) // until the other end is closed
		})
	}
	waiting.Wait()
	err = w.Close()
	ended.Wait()
	return errors.Join(err, r.Close())
}
