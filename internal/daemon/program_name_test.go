package daemon

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
)

// becomesSleep starts a shell. The returned function turns it into sleep, as netnice run becomes its command.
func becomesSleep(t *testing.T) (cmd *exec.Cmd, become func()) {
	t.Helper()
	cmd = exec.Command("sh", "-c", "read line; exec sleep 60")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { end(cmd) })
	return cmd, func() {
		_, err := io.WriteString(in, "\n")
		require.NoError(t, err)
	}
}

// noted returns the name that the daemon would show for a node if its process ended now.
func (h *harness) noted(id uint32) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nodes.Get(id).res.Name
}

// shown returns the name in the list for a subject.
func (h *harness) shown(subject string) string {
	h.t.Helper()
	nodes, err := h.nodesFor(subject)
	require.NoError(h.t, err)
	return nodes[0].Name
}

// A tree whose first process has ended has the name of the program that it ran last. The name at the time of the
// command would be netnice for netnice run. A restarted daemon shows the same name.
func TestTreeIsNamedByItsLastProgram(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	proc, become := becomesSleep(t)
	node := h.mustSet(root, pidSubject(proc), up(1e6))
	require.Equal(t, "sh", node.Name)
	become()
	h.eventually("the name is noted while the process runs", func() bool { return h.noted(node.ID) == "sleep" })
	end(proc)
	require.Equal(t, "sleep", h.shown(pidSubject(proc)))
	require.NoError(t, h.stop())
	h = start(t, fake, h.opts)
	require.Equal(t, "sleep", h.shown(pidSubject(proc)))
}

// A program that ends before the next reading still gets its name, if its parent has not waited for it yet.
func TestTreeIsNamedAtItsEnd(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	opts.Tick = time.Minute
	h := start(t, fake, opts)
	proc, become := becomesSleep(t)
	node := h.mustSet(root, pidSubject(proc), up(1e6))
	become()
	h.eventually("the shell is sleep", func() bool { return h.shown(pidSubject(proc)) == "sleep" })
	require.NoError(t, proc.Process.Kill())
	h.eventually("the end is known", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.nodes.Get(node.ID).watch.HasEnded()
	})
	end(proc)
	h.eventually("the last name stays", func() bool { return h.shown(pidSubject(proc)) == "sleep" })
}

// A limit by a command on some addresses has the name of the program, too.
func TestPartOfTheTrafficIsNamedByItsProgram(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	proc, become := becomesSleep(t)
	subject := "to:10.0.0.0/8@" + pidSubject(proc)
	require.Equal(t, "sh", h.mustSet(root, subject, up(1e6)).Name)
	become()
	h.eventually("the program's name", func() bool { return h.shown(subject) == "sleep" })
}

// A share keeps the name of the program that its process ran last, in lists, in events and in the file. The process may
// have ended before the next tick and left a child behind.
func TestPowerIsNamedAtItsEnd(t *testing.T) {
	h, fake := powerHarness(t, func(o *Options) { o.Tick = time.Minute })
	proc, become := becomesSleep(t)
	child := sleeper(t).Process.Pid
	all := h.hear(root)
	require.Equal(t, "sh", h.mustPower(root, proc.Process.Pid, 30).Name)
	fake.Change(func() { fake.At[child] = fake.At[proc.Process.Pid] })
	become()
	h.eventually("the name is noted before the tick", func() bool {
		h.programDue() // each new share does so, too
		return h.savedName(proc.Process.Pid) == "sleep"
	})
	end(proc)
	shown := func() string {
		list, err := h.Powers(t.Context())
		require.NoError(t, err)
		require.Len(t, list.Powers, 1)
		return list.Powers[0].Name
	}
	require.Equal(t, "sleep", shown())
	h.cpuShares.Look(t.Context())
	require.Equal(t, "sleep", shown())
	_, err := h.power(root, proc.Process.Pid, 0)
	require.NoError(t, err)
	h.eventually("it is told so", func() bool { return all.last(api.EventPowerLifted).Name == "sleep" })
}

// savedName returns the name of a share in the state file.
func (h *harness) savedName(pid int) string {
	var s struct {
		Powers []struct {
			PID  int    `json:"pid"`
			Name string `json:"name"`
		} `json:"powers"`
	}
	text, err := os.ReadFile(h.cpuSharePath())
	if err != nil || json.Unmarshal(text, &s) != nil {
		return "" // it is being written
	}
	for _, p := range s.Powers {
		if p.PID == pid {
			return p.Name
		}
	}
	return ""
}

// netnice exec asks for a CPU share before it becomes its command.
func TestPowerIsNamedByItsLastProgram(t *testing.T) {
	h, _ := powerHarness(t)
	proc, become := becomesSleep(t)
	require.Equal(t, "sh", h.mustPower(root, proc.Process.Pid, 30).Name)
	become()
	h.eventually("the name is noted while the process runs", func() bool {
		return h.savedName(proc.Process.Pid) == "sleep"
	})
}
