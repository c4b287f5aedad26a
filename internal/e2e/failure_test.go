package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/netnice/netnice/internal/testbed"
)

// failuresVariable names the environment variable with the folder that gets a subfolder for each failed test.
// Without the variable these are in the system's temporary folder.
const failuresVariable = "NETNICE_TEST_FAILURES"

// explainFailure saves the state that may explain a failed test, before the stage is taken down. It saves the
// limits, the limit that binds each process, the daemons' logs, the fault counters and the state of the machine. It
// also logs all of that, so that a log alone has it.
func (s *stage) explainFailure() {
	done := make(chan struct{})
	go func() { // t.Fatal in here ends this goroutine only, so the stage is taken down all the same
		defer close(done)
		s.keepFailure()
	}()
	<-done
}

func (s *stage) keepFailure() {
	base := os.Getenv(failuresVariable)
	if base == "" {
		base = filepath.Join(os.TempDir(), "netnice-failures")
	}
	dir := filepath.Join(base, strings.ReplaceAll(s.t.Name(), "/", "."))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.t.Logf("what explains the failure is only here: %v", err)
		dir = ""
	}
	keep := func(name, text string) {
		if strings.TrimSpace(text) == "" {
			return
		}
		s.t.Logf("%s:\n%s", name, text)
		if dir != "" {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				s.t.Log(err)
			}
		}
	}
	if !s.daemonGone {
		keep("ls", s.netnice("ls").String())
		var status struct {
			Counters map[string]uint64 `json:"counters"`
		}
		if err := json.Unmarshal([]byte(s.netnice("status", "--json").out), &status); err == nil {
			keep("faults", fmt.Sprint(status.Counters))
		}
		var why strings.Builder
		for subject := range s.nodes() {
			if pid, ok := strings.CutPrefix(subject, "pid:"); ok {
				fmt.Fprintln(&why, s.netnice("why", pid).String())
			}
		}
		keep("why", why.String())
	}
	for i, d := range s.daemons {
		keep(fmt.Sprintf("daemon-%d.log", i+1), d.log.String())
	}
	now := testbed.Now()
	load, _ := os.ReadFile("/proc/loadavg")
	keep("machine", fmt.Sprintf("since the test began: CPUs %.0f%% busy, for %v a processor let nobody wake up, %d packets were dropped before they were received; load %sother daemons: %q\n",
		100*cpus.busy(s.begun, now), cpus.paused(s.begun, now), cpus.lost(s.begun, now), load, foreignDaemons()))
	if dir != "" {
		s.t.Logf("the same is in %s", dir)
	}
}
