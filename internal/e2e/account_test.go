package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/testbed"
)

// What a subject's counter says is what has left. Every test on a field compares both at its end, if one subject alone
// sends there: see account.

const (
	// accountPart is the difference that is allowed, as a part of what has left: see docs/internals/testing.md.
	accountPart = 0.0005
	// accountLast is what may be charged more for each connection: its last acknowledgement is charged when it begins.
	accountLast = 100
	// accountQuiet is how long nothing has to leave before the last reading, and accountWait how long a test waits for that.
	accountQuiet = 150 * time.Millisecond
	accountWait  = 3 * time.Second
)

// account compares the bytes that have left a field's device with the bytes that the only limited subject was charged.
// At the end of a test it stops the programs and has their limit raised, so that all that is queued leaves.
type account struct {
	f *field

	mu       sync.Mutex
	programs []program
	opening  *accountReading
	reason   string // why nothing can be compared; "" = nothing is known against it
	closed   bool
}

// program is a program of a test that may send by the field's device.
type program struct {
	pid    int
	uid    uint32
	cgroup string // folder
	group  bool   // it leads a group of processes
	// sends says whether it has sent anything, or acknowledged; nil = it may have.
	sends func() bool
}

// accountReading holds what was charged and what had left at about the same time.
type accountReading struct {
	node          api.Node
	before, after uint64 // bytes that had left before and after the node's counter was read
	connections   uint64 // that have begun in the namespace
}

// openAccount begins an account on a field's device.
func (f *field) openAccount() {
	if f.account != nil {
		f.account.giveUp("the test has more than one field")
		return
	}
	f.account = &account{f: f}
}

func (a *account) giveUp(reason string) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reason == "" {
		a.reason = reason
	}
}

// adds notes a program that was started in a namespace.
func (a *account) adds(in *testbed.NetNS, p program) {
	if a == nil || in != a.f.A {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.programs = append(a.programs, p)
}

// commanded is called after each command that has succeeded.
func (a *account) commanded(args []string) {
	// Other commands, such as those of read, come here too.
	if a == nil || len(args) == 0 || !slices.Contains([]string{"set", "unset", "down"}, args[0]) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed || a.reason != "":
	case slices.Contains(args, "--to") || slices.Contains(args, "--loopback"):
		a.reason = "a limit is for a destination or for loopback"
	case args[0] == "set" && a.opening == nil:
		a.opening, a.reason = a.read()
	case args[0] == "unset" || args[0] == "down":
		a.reason = "the test has lifted a limit"
	}
}

// runs is called before a program starts that limits itself, as netnice run does.
func (a *account) runs(in *testbed.NetNS) {
	if a == nil || in != a.f.A {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.opening != nil || a.closed || a.reason != "" {
		return
	}
	r, err := a.leaving()
	if err != nil {
		a.reason = err.Error()
		return
	}
	a.opening = r
}

// leaving returns a reading of what has left alone.
func (a *account) leaving() (*accountReading, error) {
	r := new(accountReading)
	var err error
	if r.before, _, err = a.f.meter.Total(); err != nil {
		return nil, err
	}
	r.after = r.before
	r.connections, err = a.f.connectionsBegun()
	return r, err
}

// connectionsBegun returns the number of TCP connections that A's programs have made and accepted.
func (f *field) connectionsBegun() (n uint64, err error) {
	err = f.A.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp")
		var names []string
		for line := range strings.Lines(string(text)) {
			w := words(line)
			switch {
			case len(w) == 0 || w[0] != "Tcp:":
			case names == nil:
				names = w
			default:
				for i, name := range names {
					if name == "ActiveOpens" || name == "PassiveOpens" {
						opens, err := strconv.ParseUint(w[i], 10, 64)
						if err != nil {
							return err
						}
						n += opens
					}
				}
			}
		}
		return err
	})
	return n, err
}

// read returns the figures of the only limited subject, or the reason why there are none.
func (a *account) read() (*accountReading, string) {
	a.f.t.Helper()
	r, err := a.leaving()
	if err != nil {
		return nil, err.Error()
	}
	var list api.NodeList
	answer := a.f.netnice("ls", "--json")
	if answer.code != 0 {
		return nil, "netnice does not answer" // the test has ended its daemon
	}
	if err := json.Unmarshal([]byte(answer.out), &list); err != nil {
		return nil, err.Error()
	}
	nodes := list.Nodes
	if r.after, _, err = a.f.meter.Total(); err != nil {
		return nil, err.Error()
	}
	if len(nodes) != 1 {
		return nil, fmt.Sprintf("%d subjects are limited", len(nodes))
	}
	r.node = nodes[0]
	if !slices.ContainsFunc(r.node.Limits, func(l api.Limit) bool { return l.Direction != api.Down }) {
		return nil, "what is sent has no limit"
	}
	return r, ""
}

// alone returns "" if all programs that send are the subject's.
func (a *account) alone(node api.Node) string {
	if len(a.programs) == 0 {
		return "no program sends from the field"
	}
	for _, p := range a.programs {
		if p.sends != nil && !p.sends() {
			continue
		}
		kind, id, _ := strings.Cut(node.Subject.String(), ":")
		switch {
		case kind == "pid" && id == itoa(p.pid), kind == "user" && id == itoa(p.uid):
		case kind == "cgroup" && p.cgroup != "" && strings.HasPrefix(p.cgroup+"/", cgroupMount()+id+"/"):
		default:
			return "another program may send"
		}
	}
	links, err := a.f.A.Netlink().LinkList()
	if err != nil {
		return err.Error()
	}
	for _, l := range links {
		if name := l.Attrs().Name; name != "lo" && name != testbed.Device && !strings.HasPrefix(name, "netnice") && !strings.HasPrefix(name, "nn-") {
			return "traffic may leave by " + name
		}
	}
	return ""
}

// settleAccount compares the account's figures, once. It is called before the first program of a test ends with the test.
func (s *stage) settleAccount() {
	s.t.Helper()
	a := s.account
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	a.closed = true
	if s.t.Failed() || s.daemonGone {
		return
	}
	done := make(chan error, 1)
	go func() { // a t.Fatal in here must not end the test's cleanup
		defer close(done)
		done <- a.compare()
	}()
	if err := <-done; err != nil {
		s.t.Error(err)
	}
}

// compare returns an error if the figures differ. Where they cannot be compared it logs why.
func (a *account) compare() error {
	t := a.f.t
	t.Helper()
	reason := a.reason
	if reason == "" && a.opening == nil {
		reason = "no command has set a limit"
	}
	var last *accountReading
	if reason == "" {
		last, reason = a.read()
	}
	if reason == "" {
		reason = a.alone(last.node)
	}
	if reason != "" {
		t.Logf("account: not compared: %s", reason)
		return nil
	}
	first := a.opening
	quiet := a.drain(last.node)
	defer a.signal(syscall.SIGCONT)
	last, reason = a.read()
	switch {
	case reason != "":
	case first.node.ID != 0 && last.node.ID != first.node.ID || last.node.Up.Bytes < first.node.Up.Bytes:
		reason = "the subject was limited anew"
	case !quiet:
		reason = "programs go on sending that could not be stopped"
	}
	if reason != "" {
		t.Logf("account: not compared: %s", reason)
		return nil
	}
	charged := float64(last.node.Up.Bytes - first.node.Up.Bytes)
	left, uncertain := float64(last.before-first.after), float64(first.after-first.before+last.after-last.before)
	connections := float64(last.connections - first.connections)
	t.Logf("account: %.0f charged, %.0f left (+ %.0f), %.5f; %.0f connections", charged, left, uncertain, charged/max(left, 1), connections)
	if slack := accountPart * left; charged < left-slack || charged > left+uncertain+slack+accountLast*connections {
		return fmt.Errorf("account: %s was charged %.0f bytes, and %.0f to %.0f have left", last.node.Subject, charged, left, left+uncertain)
	}
	return nil
}

// signal sends a signal to all programs.
func (a *account) signal(number syscall.Signal) {
	for _, p := range a.programs {
		pid := p.pid
		if p.group {
			pid = -pid
		}
		_ = syscall.Kill(pid, number) // it may have ended
	}
}

// drain stops the programs and has all leave that they have queued, so that nothing is charged that has yet to leave. It says
// whether nothing leaves any more.
func (a *account) drain(node api.Node) bool {
	a.f.t.Helper()
	a.signal(syscall.SIGSTOP)
	args := []string{"set"}
	switch kind, id, _ := strings.Cut(node.Subject.String(), ":"); kind {
	case "pid", "user", "cgroup":
		args = append(args, "--"+kind, id)
	}
	for _, l := range node.Limits {
		if l.Direction != api.Down {
			args = append(args, "--"+string(l.Direction), "1GB/s")
		}
	}
	if r := a.f.run(a.f.command(args...), nil); r.code != 0 {
		a.f.t.Log(r)
	}
	last, since := uint64(0), time.Now()
	for begin := time.Now(); time.Since(begin) < timeoutScale*accountWait; time.Sleep(10 * time.Millisecond) {
		now, _, err := a.f.meter.Total()
		switch {
		case err != nil:
			return false
		case now != last:
			last, since = now, time.Now()
		case time.Since(since) >= accountQuiet:
			return true
		}
	}
	return false
}
