package cli_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client/clienttest"
	"github.com/netnice/netnice/internal/cli"
)

// The scripts run the test binary under these names. Their daemon is a fake in memory, which `daemon start` in the
// script or netnice itself starts.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"netnice": func() { os.Exit(fakeApp().Run(context.Background(), os.Args)) },
		"nlimit":  func() { os.Exit(fakeApp().Run(context.Background(), os.Args)) },
		// These are programs with names that no other process has, each for one script.
		"nnsleeper":  func() { time.Sleep(time.Minute) },
		"nncomplete": func() { time.Sleep(time.Minute) },
		"nnalways":   func() { time.Sleep(time.Minute) },
		"nnparent":   nest,
	})
}

// nest is a program with a child that runs the same program, and ends with it.
func nest() {
	const inside = "NETNICE_TEST_INSIDE"
	if os.Getenv(inside) == "" {
		runtime.LockOSThread() // the child ends with this thread
		cmd := exec.Command("nnparent")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	time.Sleep(time.Minute)
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE") != "",
		Setup: func(env *testscript.Env) error {
			// A socket's path has at most 107 bytes; $WORK may be longer.
			dir, err := os.MkdirTemp("", "nn")
			if err != nil {
				return err
			}
			env.Defer(func() { _ = os.RemoveAll(dir) })
			env.Setenv("NETNICE_SOCKET", filepath.Join(dir, "s"))
			env.Setenv("NETNICE_TEST_DIR", dir)
			env.Setenv("NETNICE_TEST_EUID", "0")
			env.Setenv("NETNICE_TEST_BTF", "ok")
			env.Setenv("TZ", "UTC")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else every command takes a second more under -race
			env.Setenv("PID", strconv.Itoa(os.Getpid()))
			env.Values["script"] = &script{socket: filepath.Join(dir, "s")}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"daemon": daemonCommand,
			"exits":  exitsCommand,
			"zombie": zombieCommand,
		},
	})
}

// script holds the running daemon of one script.
type script struct {
	socket string
	daemon *clienttest.Daemon
	server *http.Server
}

// daemonCommand is `daemon start|stop|deny MESSAGE HINT|cut CALLS|member|problem MESSAGE
// HINT|tree|destinations|held|pending|follows|reads FILE LINE|ruled|mine|total|rules [PROBLEM]|events|quiet|requests`.
func daemonCommand(ts *testscript.TestScript, _ bool, args []string) {
	s, ok := ts.Value("script").(*script)
	if !ok || len(args) == 0 {
		ts.Fatalf("usage: daemon start|stop|deny|tree|unknown|requests")
	}
	switch args[0] {
	case "start":
		l, err := net.Listen("unix", s.socket)
		ts.Check(err)
		s.daemon = clienttest.New()
		s.server = &http.Server{Handler: s.daemon, ReadHeaderTimeout: time.Second}
		go func() { _ = s.server.Serve(l) }()
		ts.Defer(func() { _ = s.server.Close() })
	case "stop":
		ts.Check(s.server.Close())
	case "deny":
		s.daemon.Deny(&api.Error{Code: api.CodeDenied, Message: args[1], Hint: args[2]})
	case "tree", "destinations", "held", "total":
		examples := map[string]func() []api.Node{
			"tree": exampleTree, "destinations": exampleDestinations, "held": exampleHeld, "total": exampleTotal,
		}
		for _, n := range examples[args[0]]() {
			s.daemon.Put(n)
		}
	case "ruled":
		s.daemon.Put(api.Node{
			ID: 30, Subject: api.Subject{Kind: api.KindRule, ID: "scp"}, Name: "all of scp", Weight: 100,
			Limits: []api.Limit{{Owner: "admin", Direction: api.Up, BytesPerSec: 1e6, Enforced: true, Rule: &api.RuleOrigin{Name: "scp", File: "f", Line: 1}}},
		})
	case "mine": // a limit of the user 54321; no account has that number
		s.daemon.Put(api.Node{
			ID: 31, Subject: api.Subject{Kind: api.KindPID, ID: "10300"}, Name: "mine", UID: 54321, Weight: 100,
			Limits: []api.Limit{{Owner: "54321", Direction: api.Up, BytesPerSec: 1e6, Enforced: true}},
		})
	case "reads": // `daemon reads FILE LINE`: a rule for nnalways at this place is in force, on one process
		line, err := strconv.Atoi(args[2])
		ts.Check(err)
		rate := uint64(1e6)
		rule := api.RuleOrigin{Name: "nnalways", File: ts.MkAbs(args[1]), Line: line}
		s.daemon.SetRules(api.RuleList{Version: api.Version, Followed: true, Problems: []api.RuleProblem{}, Rules: []api.Rule{{
			RuleOrigin: rule, TotalBytesPerSec: &rate, Share: "each", Active: true, Nodes: 1,
		}}}, api.RuleTest{})
		s.daemon.Put(api.Node{
			ID: 32, Subject: api.Subject{Kind: api.KindPID, ID: "10400"}, Name: "nnalways", Weight: 100,
			Limits: []api.Limit{{Owner: "admin", Direction: api.Total, BytesPerSec: rate, Enforced: true, Rule: &rule}},
		})
	case "follows": // the daemon follows rules, and there is none yet
		s.daemon.SetRules(api.RuleList{Version: api.Version, Followed: true, Rules: []api.Rule{}, Problems: []api.RuleProblem{}}, api.RuleTest{})
	case "pending":
		for _, n := range examplePending() {
			s.daemon.Put(n)
		}
	case "member":
		s.daemon.SetAdministrator(true)
	case "cut":
		calls, err := strconv.Atoi(args[1])
		ts.Check(err)
		s.daemon.CutAfter(calls)
	case "rules":
		s.daemon.SetRules(exampleRules(args[1:]...))
	case "events":
		s.daemon.SetEvents(exampleEvents()...)
	case "quiet":
		s.daemon.SetEvents(exampleEvents()[0])
		s.daemon.HoldEvents()
	case "why":
		s.daemon.SetWhy(exampleWhy())
	case "problem":
		s.daemon.SetProblems(api.Problem{Message: args[1], Hint: args[2]})
	case "unknown":
		s.daemon.SetUnknown(api.Unknown{
			Up:   api.UnknownUsage{Bytes: 2_100_000, Packets: 1500, RateBytesPerSec: 400_000, BytesOf: api.UnknownBytes{Socket: 2_000_000, Kernel: 100_000}},
			Down: api.UnknownUsage{Bytes: 3_000_000, Packets: 2000, BytesOf: api.UnknownBytes{NoSocket: 3_000_000}},
		})
	case "requests":
		var out strings.Builder
		for _, r := range s.daemon.Requests() {
			fmt.Fprintf(&out, "%s%s\n", r.Subject, wishText(r))
		}
		ts.Check(os.WriteFile(ts.MkAbs("requests"), []byte(out.String()), 0o600))
	default:
		ts.Fatalf("daemon: what is %q?", args[0])
	}
}

func wishText(r api.SetRequest) string {
	var b strings.Builder
	field := func(name string, v *uint64) {
		if v != nil {
			fmt.Fprintf(&b, " %s=%d", name, *v)
		}
	}
	field("up", r.Wish.UpBytesPerSec)
	field("down", r.Wish.DownBytesPerSec)
	field("total", r.Wish.TotalBytesPerSec)
	field("burst", r.Wish.BurstNS)
	if r.Wish.Weight != nil {
		fmt.Fprintf(&b, " weight=%d", *r.Wish.Weight)
	}
	if r.Wish.MinBytesPerSec != nil {
		fmt.Fprintf(&b, " min=%d", *r.Wish.MinBytesPerSec)
	}
	if r.Wish.Loopback != nil {
		fmt.Fprintf(&b, " loopback=%v", *r.Wish.Loopback)
	}
	if r.Wish.Persist != nil {
		fmt.Fprintf(&b, " persist=%v", *r.Wish.Persist)
	}
	if r.Scope {
		b.WriteString(" scope")
	}
	if len(r.Members) > 0 {
		fmt.Fprintf(&b, " members=%d", len(r.Members))
	}
	if r.DryRun {
		b.WriteString(" dry-run")
	}
	return b.String()
}

// exitsCommand is `exits CODE COMMAND ARGS`: it runs the command, and fails on another exit code.
func exitsCommand(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// zombieCommand sets $ZOMBIE to the id of a zombie: a process that has ended, and whose parent has not waited for it.
func zombieCommand(ts *testscript.TestScript, _ bool, _ []string) {
	cmd := exec.Command("true")
	ts.Check(cmd.Start())
	ts.Defer(func() { _ = cmd.Wait() })
	for range 500 {
		if !(cli.Machine{}).Alive(cmd.Process.Pid) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	ts.Setenv("ZOMBIE", strconv.Itoa(cmd.Process.Pid))
}
