package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil/sockopts"
)

// printAnswers prints an agent's results of other software's socket options.
func printAnswers() error {
	for name, value := range map[string]string{"igmp_max_msf": "2000"} {
		if err := os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0); err != nil {
			return err
		}
	}
	list, err := sockopts.Answers()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(list)
}

// The kernel answers other software's options, large ones too, as without netnice: while netnice is up, and while
// the program is limited.
func TestOthersOptions(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	ns, err := testbed.NewNetNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(when string, under ...string) (list []sockopts.Answer) {
		t.Helper()
		args := append(append(under, self), agentArgs(agentOptions)[1:]...)
		r := s.run(exec.Command(args[0], args[1:]...), ns)
		if err := json.Unmarshal([]byte(r.out), &list); err != nil || r.code != 0 {
			t.Fatalf("%s: %v, %v", when, r, err)
		}
		return list
	}
	without := ask("without netnice")
	large := 0
	for _, a := range without {
		t.Log(a)
		if a.Bytes > os.Getpagesize() && a.Set == "ok" {
			large++
		}
	}
	if large < 4 {
		t.Errorf("only %d options larger than a page are set on this kernel", large)
	}
	s.daemon()
	up := ask("with netnice")
	limited := ask("limited", netniceBinary, "run", "--up", "1MB/s", "--down", "1MB/s", "--")
	for when, with := range map[string][]sockopts.Answer{"with netnice": up, "limited": limited} {
		if !slices.Equal(without, with) {
			for i := range without {
				if without[i] != with[i] {
					t.Errorf("%s: %v; without: %v", when, with[i], without[i])
				}
			}
		}
	}
}
