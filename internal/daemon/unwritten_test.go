package daemon

import (
	"context"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/testutil"
)

// disk is a disk that may be full or read-only.
type disk struct {
	fault  atomic.Pointer[error]
	locked atomic.Bool // existing files can neither be removed nor overwritten
}

func (d *disk) set(fault error, locked bool) {
	d.locked.Store(locked)
	if fault == nil {
		d.fault.Store(nil)
		return
	}
	d.fault.Store(&fault)
}

func (d *disk) write(path string, takesNoRoom bool) error {
	fault := d.fault.Load()
	if fault == nil || takesNoRoom && !d.locked.Load() {
		return nil
	}
	return &fs.PathError{Op: "open", Path: path, Err: *fault}
}

func TestDiskThatCannotBeWritten(t *testing.T) {
	for name, c := range map[string]struct {
		fault  error
		locked bool
		remedy string
	}{
		"full":       {unix.ENOSPC, false, "df "},
		"over quota": {unix.EDQUOT, false, "df "},
		"read-only":  {unix.EROFS, true, "findmnt -T "},
		"broken":     {unix.EIO, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &enforcetest.Kernel{}
			opts := testOptions(t, fake)
			var d disk
			opts.fault = d.write
			h := withLimits(t, opts, fake)
			told := func(answer api.SetResponse, err error) {
				t.Helper()
				require.NoError(t, err)
				require.True(t, answer.Changed)
				text := strings.Join(answer.Warnings, "\n")
				require.Contains(t, text, "the state could not be written: ")
				require.Contains(t, text, c.fault.Error())
				require.Contains(t, text, c.remedy)
			}
			d.set(c.fault, c.locked)
			told(h.set(root, "user:4250", up(7e6)))
			told(h.set(root, "user:4242", up(8e6)))
			told(h.set(auth.Actor{UID: 4244}, "user:4244", up(1e6)))
			told(h.remove(root, "host"))
			told(h.set(root, "to:192.0.2.1", up(1e6)))
			told(h.remove(root, "to:192.0.2.1"))
			now := inForce(t, fake)
			require.Len(t, now, 4)
			require.EqualValues(t, 8e6, now[specKey(enforce.KindUser, 4242)].Ceilings[enforce.OwnerAdmin][enforce.Up].BytesPerSec)
			status, err := h.Status(context.Background())
			require.NoError(t, err)
			require.NotZero(t, status.Counters[notWritten])
			require.Len(t, status.Problems, 1)
			require.Contains(t, status.Problems[0].Message, c.fault.Error())
			require.Contains(t, status.Problems[0].Hint, c.remedy)

			// The file is written as soon as that is possible, without another command.
			d.set(nil, false)
			h.written()
			h.eventually("the problem is over", func() bool {
				status, err := h.Status(context.Background())
				return err == nil && len(status.Problems) == 0
			})
			answer, err := h.set(root, "user:4250", up(9e6))
			require.NoError(t, err)
			require.Empty(t, answer.Warnings)
			now = inForce(t, fake)

			// The next daemon starts on such a disk, and root lifts all limits.
			require.NoError(t, h.stop())
			d.set(c.fault, c.locked)
			h = start(t, fake, opts)
			require.Equal(t, now, inForce(t, fake))
			told(h.remove(root, "user:4250"))
			err = h.Down(context.Background(), root)
			if c.locked {
				e := testutil.RequireFault(t, api.CodeInternal, err)
				require.Contains(t, e.Message, "all limits are lifted")
				require.Contains(t, e.Hint, "sudo rm "+h.file.Path())
			} else {
				require.NoError(t, err)
			}
			_ = h.wait()
			require.True(t, fake.IsDown())
			require.Empty(t, inForce(t, fake))
		})
	}
}

// A daemon that is killed while the disk is full leaves a file that is marked as behind. Limits that were lifted since
// do not come back, and limits that were set since are not lost.
func TestKilledOnFullDisk(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	var d disk
	opts.fault = d.write
	h := withLimits(t, opts, fake)
	d.set(unix.ENOSPC, false)
	for subject, rate := range map[string]uint64{"user:4242": 8e6, "user:4250": 7e6} {
		h.mustSet(root, subject, up(rate))
	}
	_, err := h.remove(root, "host")
	require.NoError(t, err)
	now := inForce(t, fake)
	require.NoError(t, h.stop())
	h = start(t, fake, opts)
	require.Equal(t, now, inForce(t, fake))
	status, err := h.Status(context.Background())
	require.NoError(t, err)
	require.Len(t, status.Problems, 2, "it cannot be written, and the former cannot be kept yet")
	require.Contains(t, status.Problems[1].Message, "what was wanted last could not be written")
	d.set(nil, false)
	h.written()
	require.Len(t, Damaged(opts.StateDir), 1)
	require.NoError(t, h.stop())
	start(t, fake, opts)
	require.Equal(t, now, inForce(t, fake))
}
