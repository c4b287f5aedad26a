package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/testutil"
)

func atLeast(rate uint64) api.Wish { return api.Wish{MinBytesPerSec: &rate} }

// At most 95% of a limit may be guaranteed. A guarantee beyond that is refused with the figures.
func TestAdmission(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	h.mustSet(root, "host", up(10e6))
	one := h.mustSet(root, "user:4242", atLeast(5e6))
	require.EqualValues(t, 5e6, one.MinBytesPerSec)
	spec, _ := fake.Spec(one.ID)
	require.EqualValues(t, 5e6, spec.Guarantee)

	_, err := h.set(root, "user:4243", atLeast(5e6))
	require.Equal(t, "a guarantee of 5 MB/s does not fit into the limit of 10 MB/s on host: 9.5 MB/s of it may be guaranteed, 5 MB/s are already, 4.5 MB/s are left",
		testutil.RequireFault(t, api.CodeConflict, err).Message)
	h.mustSet(root, "user:4243", atLeast(4.5e6))
	h.mustSet(root, "user:4242", atLeast(4e6)) // less
	_, err = h.set(root, "user:4243", atLeast(5.6e6))
	testutil.RequireCode(t, api.CodeConflict, err)
	h.mustSet(root, "user:4243", atLeast(5.5e6)) // the rate that was given back

	// The rate of a lifted guarantee is available again.
	_, err = h.remove(root, "user:4242")
	require.NoError(t, err)
	h.mustSet(root, "user:4244", atLeast(4e6))
	answer, err := h.set(root, "user:4244", atLeast(0))
	require.NoError(t, err)
	require.Nil(t, answer.Node, "nothing else is wanted of it")
}

// A process that has ended keeps its limit while its connections drain. Its guarantee refuses nobody any more.
func TestAdmissionAfterEnd(t *testing.T) {
	testutil.RequireRoot(t) // its processes have to be root's
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	h.mustSet(root, "host", up(10e6))
	former, next := sleeper(t), sleeper(t)
	node := h.mustSet(root, pidSubject(former), atLeast(8e6))
	_, err := h.set(root, pidSubject(next), atLeast(8e6))
	testutil.RequireCode(t, api.CodeConflict, err)

	fake.SetSockets(enforce.SocketStats{Nodes: []uint32{node.ID}, UnsentBytes: 1})
	h.end(former, node.ID)
	_, err = h.set(root, pidSubject(next), atLeast(8e6))
	require.Contains(t, testutil.RequireFault(t, api.CodeConflict, err).Message, "8 MB/s are already", "a child of it lives")

	fake.SetStats(enforce.NodeStats{ID: node.ID})
	h.mustSet(root, pidSubject(next), atLeast(8e6))
	_, holds := fake.Spec(node.ID)
	require.True(t, holds, "the limit ended before the connection")
	_, err = h.set(root, "user:4242", atLeast(2e6))
	require.Contains(t, testutil.RequireFault(t, api.CodeConflict, err).Message, "8 MB/s are already")
}

// The guarantee of a group whose members have ended refuses nobody any more. A new member brings it back, if it still
// fits.
func TestAdmissionOfNewMember(t *testing.T) {
	testutil.RequireRoot(t) // its processes have to be root's
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	h.mustSet(root, "host", up(10e6))
	former, next := sleeper(t), sleeper(t)
	answer, err := h.group(root, "g", api.Wish{MinBytesPerSec: ptr(uint64(8e6)), MinDownBytesPerSec: ptr(uint64(1e6))}, memberOf(former, 0))
	require.NoError(t, err)
	node := *answer.Node
	fake.SetSockets(enforce.SocketStats{Nodes: []uint32{node.ID}, UnsentBytes: 1})
	fake.SetStats(enforce.NodeStats{ID: node.ID, Processes: 1})
	_, err = h.set(root, "user:4242", atLeast(8e6))
	testutil.RequireCode(t, api.CodeConflict, err)

	end(former)
	fake.SetStats(enforce.NodeStats{ID: node.ID})
	h.mustSet(root, "user:4242", atLeast(8e6))
	_, err = h.group(root, "g", api.Wish{}, memberOf(next, 0))
	require.Contains(t, testutil.RequireFault(t, api.CodeConflict, err).Message, "a guarantee of 8 MB/s does not fit into the limit of 10 MB/s on host")
	_, err = h.group(root, "g", atLeast(1e6), memberOf(next, 0))
	require.NoError(t, err, "less fits")
}

// A guarantee on receiving is a part of limits on receiving, and of limits on both directions together.
func TestAdmissionDown(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	least := func(rate uint64) api.Wish { return api.Wish{MinDownBytesPerSec: &rate} }
	h.mustSet(root, "host", api.Wish{UpBytesPerSec: ptr(uint64(1e6)), DownBytesPerSec: ptr(uint64(20e6)), TotalBytesPerSec: ptr(uint64(10e6))})
	one := h.mustSet(root, "user:4242", least(5e6))
	require.EqualValues(t, 5e6, one.MinDownBytesPerSec)
	spec, _ := fake.Spec(one.ID)
	require.EqualValues(t, 5e6, spec.GuaranteeDown)
	require.Zero(t, spec.Guarantee)
	_, err := h.set(root, "user:4243", least(5e6))
	require.Contains(t, testutil.RequireFault(t, api.CodeConflict, err).Message, "9.5 MB/s of it may be guaranteed, 5 MB/s are already")
	_, err = h.set(root, "user:4243", atLeast(1e6))
	require.Contains(t, testutil.RequireFault(t, api.CodeConflict, err).Message, "950 kB/s of it may be guaranteed, 0 B/s are already")
	h.mustSet(root, "user:4242", least(4e6))
	h.mustSet(root, "user:4243", least(5.5e6))
}

// A guarantee inside another is a part of that one, not of the limits that enclose both.
func TestAdmissionNested(t *testing.T) {
	testutil.RequireRoot(t) // its process has to be root's
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	proc := sleeper(t)
	h.mustSet(root, "host", up(10e6))
	h.mustSet(root, "user:0", api.Wish{UpBytesPerSec: ptr(uint64(8e6)), MinBytesPerSec: ptr(uint64(6e6))})
	h.mustSet(root, pidSubject(proc), atLeast(5e6))
	h.mustSet(root, "user:4242", atLeast(3.5e6))
	_, err := h.set(root, "user:4242", atLeast(4e6))
	require.Contains(t, testutil.RequireFault(t, api.CodeConflict, err).Message, "6 MB/s are already")
	_, err = h.set(root, pidSubject(proc), atLeast(7.7e6))
	require.Contains(t, testutil.RequireFault(t, api.CodeConflict, err).Message, "on user:root: 7.6 MB/s of it")
}

func TestGuaranteeRefusedAndNoted(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	bob := auth.Actor{UID: 4242}
	_, err := h.set(bob, "user:4242", atLeast(1e6))
	require.Equal(t, "sudo netnice set --user 4242 --min 1MB/s", testutil.RequireFault(t, api.CodeDenied, err).Hint)
	_, err = h.set(root, "host", atLeast(1e6))
	require.Contains(t, testutil.RequireFault(t, api.CodeBadRequest, err).Message, "nothing around it")

	answer, err := h.set(root, "user:4242", atLeast(1e6))
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(answer.Warnings), "no limit on sending stands around it")
	answer, err = h.set(root, "user:4242", up(5e5))
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(answer.Warnings), "the guarantee of 1 MB/s is more than the limit")
	h.mustSet(root, "host", up(10e6))
	answer, err = h.set(root, "host", up(1e6))
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(answer.Warnings), "1 MB/s are guaranteed inside it, which do not fit any more")
}

// A weight without anything to be compared with causes a warning, with the command that helps.
func TestWeightWithoutALimitAroundIsNoted(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	weight := func(w uint32) api.Wish { return api.Wish{Weight: &w} }
	warned := func(w api.Wish) string {
		t.Helper()
		answer, err := h.set(root, "user:4242", w)
		require.NoError(t, err)
		return fmt.Sprint(answer.Warnings)
	}
	require.Regexp(t, `none stands around user:4242: .* sudo netnice link [^ ]+ --measure HOST`, warned(weight(1)))
	own := weight(50)
	own.UpBytesPerSec = ptr(uint64(1e6))
	require.Contains(t, warned(own), "none stands around user:4242", "a limit of its own is not around it")
	require.NotContains(t, warned(weight(limit.DefaultWeight)), "none stands around")
	require.NotContains(t, warned(up(2e6)), "none stands around", "nothing is said of a weight")
	require.Regexp(t, `no limit on sending stands around it: .* sudo netnice link [^ ]+ --measure HOST`, warned(atLeast(1e6)))
	require.NotContains(t, warned(atLeast(0)), "stands around it")
	h.mustSet(root, "host", api.Wish{DownBytesPerSec: ptr(uint64(10e6))})
	require.NotContains(t, warned(weight(1)), "none stands around", "of what it receives")
}

// A guarantee outlives the daemon, and the end of the node's last rate.
func TestGuaranteeLasts(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	h := start(t, fake, opts)
	h.mustSet(root, "user:4242", api.Wish{UpBytesPerSec: ptr(uint64(5e6)), MinBytesPerSec: ptr(uint64(1e6))})
	node := h.mustSet(root, "user:4242", up(0))
	require.EqualValues(t, 1e6, node.MinBytesPerSec)
	require.NoError(t, h.stop())
	again := start(t, fake, opts)
	nodes, err := again.nodesFor("user:4242")
	require.NoError(t, err)
	require.EqualValues(t, 1e6, nodes[0].MinBytesPerSec)
}

// A router has many routes: while they are read for a warning, other callers set limits, and they are read once a
// minute.
func TestRoutesAreReadWithoutTheLock(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	opts.Identity.Proc = t.TempDir()
	routes := filepath.Join(opts.Identity.Proc, "self/net/route")
	require.NoError(t, os.MkdirAll(filepath.Dir(routes), 0o755))
	boot := filepath.Join(opts.Identity.Proc, "sys/kernel/random/boot_id")
	require.NoError(t, os.MkdirAll(filepath.Dir(boot), 0o755))
	require.NoError(t, os.WriteFile(boot, []byte("of the test\n"), 0o644))
	require.NoError(t, unix.Mkfifo(routes, 0o600)) // opening it waits for a writer
	var forward atomic.Int64                       // ns
	opts.now = func() time.Time { return time.Now().Add(time.Duration(forward.Load())) }
	h := start(t, fake, opts)
	weighs := make(chan api.SetResponse, 1)
	weigh := func(weight uint32) {
		answer, err := h.set(root, "user:4242", api.Wish{Weight: &weight})
		assert.NoError(t, err)
		weighs <- answer
	}
	go weigh(50)
	var writer *os.File
	h.eventually("the routes are read", func() (ok bool) {
		fd, err := unix.Open(routes, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) // fails without a reader
		if err == nil {
			writer = os.NewFile(uintptr(fd), routes)
		}
		return err == nil
	})
	limits := make(chan error, 1)
	go func() {
		_, err := h.set(root, "user:4243", up(1e6))
		limits <- err
	}()
	select {
	case err := <-limits:
		require.NoError(t, err)
	case <-time.After(soon):
		t.Error("a limit waits for the routes of a warning")
	}
	_, err := writer.WriteString("line0 00000000 0102030A 0003 0 0 0 00000000\n")
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	require.Contains(t, strings.Join((<-weighs).Warnings, " "), "sudo netnice link line0 --measure")
	go weigh(60)
	select {
	case answer := <-weighs:
		require.Contains(t, strings.Join(answer.Warnings, " "), "sudo netnice link line0 --measure")
	case <-time.After(soon):
		require.Fail(t, "the routes are read again")
	}
	require.NoError(t, os.Remove(routes))
	require.NoError(t, os.WriteFile(routes, []byte("line1 00000000 0102030A 0003 0 0 0 00000000\n"), 0o644))
	forward.Add(int64(identity.LatestDevicePause))
	weigh(70)
	require.Contains(t, strings.Join((<-weighs).Warnings, " "), "sudo netnice link line1 --measure")
}
