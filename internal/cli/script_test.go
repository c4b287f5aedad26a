package cli_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client/clienttest"
	"github.com/netnice/netnice/internal/cli"
	"github.com/netnice/netnice/internal/daemon"
	"github.com/netnice/netnice/internal/identity"
)

// The scripts run the test binary under these names; their daemon is one in
// memory, started by `daemon start` in the script or by netnice itself.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"netnice": func() { os.Exit(fakeApp().Run(context.Background(), os.Args)) },
		"nlimit":  func() { os.Exit(fakeApp().Run(context.Background(), os.Args)) },
		// Programs whose names no other process has, each for one script.
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

// fakeSystem is the real machine but for what tests choose by $NETNICE_TEST_*.
type fakeSystem struct{ cli.Machine }

func (fakeSystem) EUID() int { return number("NETNICE_TEST_EUID") }

// Daemon finds the daemon that was started last, while it runs. $NETNICE_TEST_LISTENS is where it listens
// instead of where it should.
func (fakeSystem) Daemon(...string) (daemon.Running, bool) {
	text, err := os.ReadFile(filepath.Join(os.Getenv("NETNICE_TEST_DIR"), "holder"))
	if err != nil {
		return daemon.Running{}, false
	}
	pid, err := strconv.Atoi(string(text))
	r := daemon.Running{PID: pid, Socket: cmp.Or(os.Getenv("NETNICE_TEST_LISTENS"), os.Getenv("NETNICE_SOCKET"))}
	return r, err == nil && (cli.Machine{}).Alive(pid)
}

func (fakeSystem) SignalDaemon(r daemon.Running, signal syscall.Signal, _ ...string) error {
	return syscall.Kill(r.PID, signal)
}

// Containers are those that $NETNICE_TEST_CONTAINERS names.
func (fakeSystem) Containers() ([]identity.Container, error) {
	var list []identity.Container
	for _, name := range strings.Fields(os.Getenv("NETNICE_TEST_CONTAINERS")) {
		list = append(list, identity.Container{Names: []string{name}})
	}
	return list, nil
}

// Processes are all, or those whose numbers $NETNICE_TEST_PIDS has.
func (fakeSystem) Processes() ([]identity.ProcessInfo, error) {
	all, err := (cli.Machine{}).Processes()
	if only := strings.Fields(os.Getenv("NETNICE_TEST_PIDS")); len(only) > 0 {
		all = slices.DeleteFunc(all, func(p identity.ProcessInfo) bool { return !slices.Contains(only, strconv.Itoa(p.PID)) })
	}
	return all, err
}

// Names are those in $NETNICE_TEST_USER, $NETNICE_TEST_UNIT and $NETNICE_TEST_LINK.
func (fakeSystem) Names(kind api.Kind) ([]string, error) {
	return strings.Fields(os.Getenv("NETNICE_TEST_" + strings.ToUpper(string(kind)))), nil
}

// HasService is true where $NETNICE_TEST_SERVICE is set.
func (fakeSystem) HasService(context.Context, string) bool {
	return os.Getenv("NETNICE_TEST_SERVICE") != ""
}

// StartService starts a daemon as systemd would, and writes down how it was asked to; it fails where
// $NETNICE_TEST_SERVICE says so.
func (f fakeSystem) StartService(ctx context.Context, again bool) error {
	if os.Getenv("NETNICE_TEST_SERVICE") == "fails" {
		return errors.New(`start netnice.service: systemd reports "failed"`)
	}
	dir, socket := os.Getenv("NETNICE_TEST_DIR"), os.Getenv("NETNICE_SOCKET")
	if err := os.WriteFile(filepath.Join(dir, "service"), fmt.Appendf(nil, "again %v\n", again), 0o600); err != nil {
		return err
	}
	args := []string{"daemon", "--socket", socket, "--pin-dir", filepath.Join(dir, "pins")}
	if _, err := f.StartDetached(args, filepath.Join(dir, "service.log")); err != nil {
		return err
	}
	for range 1000 {
		if conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket); err == nil {
			return conn.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("the daemon does not listen")
}

func (fakeSystem) Terminal(io.Writer) (width, height int) { return number("NETNICE_TEST_WIDTH"), 5 }

func number(name string) int {
	n, _ := strconv.Atoi(os.Getenv(name))
	return n
}

func fakeApp() *cli.App {
	dir := os.Getenv("NETNICE_TEST_DIR")
	return &cli.App{
		Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, System: fakeSystem{},
		LogPath: filepath.Join(dir, "daemon.log"), PinDir: filepath.Join(dir, "pins"), RulesDir: filepath.Join(dir, "etc"), Release: "test",
		Parts: cli.Parts{
			Daemon: fakeDaemon,
			Down: func(_ context.Context, o cli.DaemonOptions) error {
				return os.RemoveAll(o.PinDir)
			},
			Unused: func(_ context.Context, remove bool) ([]string, error) {
				path := filepath.Join(dir, "unused")
				if _, err := os.Stat(path); err != nil {
					return nil, nil //nolint:nilerr // there are none
				}
				if remove {
					_ = os.Remove(path)
				}
				return []string{"netnice0q", "netnice0r"}, nil
			},
			Doctor: func(context.Context) api.Report {
				r := api.Report{Version: api.Version, Kernel: "6.18.0", Checks: []api.Check{
					{Name: "cgroup v2", State: "ok", Found: "/sys/fs/cgroup"},
					{Name: "BTF", State: os.Getenv("NETNICE_TEST_BTF"), Found: "no /sys/kernel/btf/vmlinux", Means: "no program can be loaded", Remedy: "boot a kernel with CONFIG_DEBUG_INFO_BTF=y"},
				}}
				return r
			},
			Demo: func(_ context.Context, o cli.DemoOptions) error {
				_, err := fmt.Fprintf(o.Out, "demo, json %v\n", o.JSON)
				return err
			},
		},
	}
}

// fakeDaemon serves until it is told to go down, a signal, or a minute has gone.
func fakeDaemon(ctx context.Context, o cli.DaemonOptions) error {
	if lock := os.Getenv("NETNICE_TEST_LOCK"); lock != "" {
		if err := os.Mkdir(lock, 0o700); err != nil {
			return &api.Error{Code: api.CodeConflict, Message: "a netnice daemon runs already"}
		}
		time.Sleep(200 * time.Millisecond) // time for a rival to come and to end
	}
	if message := os.Getenv("NETNICE_TEST_DAEMON_FAILS"); message != "" {
		return &api.Error{Code: api.CodeInternal, Message: message, Hint: "mount -t bpf bpf /sys/fs/bpf"}
	}
	if wd, err := os.Getwd(); err != nil || wd != "/" {
		return errors.Join(fmt.Errorf("started in %s", wd), err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := os.MkdirAll(o.PinDir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.PinDir, "nodes"), nil, 0o600); err != nil {
		return err
	}
	served := clienttest.New()
	served.SetPID(os.Getpid())
	served.SetOnDemand(o.OnDemand)
	if err := os.WriteFile(filepath.Join(filepath.Dir(o.PinDir), "holder"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	_ = os.Remove(o.SocketPath)
	l, err := net.Listen("unix", o.SocketPath)
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.ServeHTTP(w, r)
		if served.IsDown() {
			_ = os.RemoveAll(o.PinDir)
			time.AfterFunc(50*time.Millisecond, cancel)
		}
	})}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
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
			env.Setenv("GORACE", "atexit_sleep_ms=0") // or every command takes a second more under -race
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

// script is what one script has running.
type script struct {
	socket string
	daemon *clienttest.Daemon
	server *http.Server
}

// daemonCommand is `daemon start|stop|deny MESSAGE HINT|cut CALLS|member|problem MESSAGE HINT|tree|destinations|held|pending|follows|reads FILE LINE|ruled|mine|total|rules [PROBLEM]|events|quiet|requests`.
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
	case "mine": // of the user 54321, who has no name
		s.daemon.Put(api.Node{
			ID: 31, Subject: api.Subject{Kind: api.KindPID, ID: "10300"}, Name: "mine", UID: 54321, Weight: 100,
			Limits: []api.Limit{{Owner: "54321", Direction: api.Up, BytesPerSec: 1e6, Enforced: true}},
		})
	case "reads": // `daemon reads FILE LINE`: a rule for nnalways there is in force, on one process
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
	case "follows": // no rule yet
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

// exitsCommand is `exits CODE COMMAND ARGS`: run it and want that exit code.
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

// zombieCommand sets $ZOMBIE to a process that has ended and waits to be waited for.
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

// exampleRules are three, and what is wrong besides.
func exampleRules(problems ...string) (api.RuleList, api.RuleTest) {
	rate, none := uint64(1e6), uint64(0)
	scp := api.Rule{
		RuleOrigin: api.RuleOrigin{Name: "scp", File: "/etc/netnice/netnice.toml", Line: 1}, Owner: "admin",
		Conditions: []string{"program scp or sftp", "user bob"}, UpBytesPerSec: &rate, Share: "each", Active: true, Nodes: 2,
	}
	night := api.Rule{
		RuleOrigin: api.RuleOrigin{Name: "line 7", File: "/etc/netnice/netnice.toml", Line: 7}, Owner: "admin",
		Conditions: []string{"program s*", "time 22:00-06:00"}, DownBytesPerSec: &none, Weight: 50, Share: "all",
	}
	own := api.Rule{
		RuleOrigin: api.RuleOrigin{Name: "evil\x1b[2J", File: "/home/bob/.config/netnice/netnice.toml", Line: 1}, Owner: "bob",
		Conditions: []string{"unit x.service"}, TotalBytesPerSec: &rate, Share: "each", Also: true, Active: true,
	}
	list := api.RuleList{Version: api.Version, Followed: true, Rules: []api.Rule{scp, night, own}, Problems: []api.RuleProblem{}}
	for _, p := range problems {
		list.Problems = append(list.Problems, api.RuleProblem{File: "/etc/netnice/netnice.toml", Line: 3, Column: 1, Message: p, Remedy: "remove the line"})
	}
	test := api.RuleTest{
		Version: api.Version, PID: os.Getpid(), Program: "/usr/bin/scp", Name: "scp", User: "bob", Command: "scp a b:", Parent: "/bin/sh",
		Rules: []api.RuleVerdict{{Rule: scp, Matches: true, Holds: true}, {Rule: night, Differs: "time"}, {Rule: own, Matches: true}},
	}
	return list, test
}

// exampleDestinations are limits on parts of the traffic: everybody's, the caller's own, and two
// of another user's.
func exampleDestinations() []api.Node {
	var list []api.Node
	for i, id := range []string{"198.51.100.0/24", "203.0.113.7:443@user:bob", "(hidden)@user:eve", "(hidden)@user:eve"} {
		list = append(list, api.Node{
			ID: uint32(20 + i), Subject: api.Subject{Kind: api.KindTo, ID: id}, Private: i > 0, Weight: 100,
			Limits: []api.Limit{{Owner: "admin", Direction: api.Up, BytesPerSec: 1e6, BurstNS: 10e6, Enforced: true}},
		})
	}
	return list
}

// exampleHeld is a process that a rule limits, in a user whom two owners have limited.
func exampleHeld() []api.Node {
	return []api.Node{
		{
			ID: 31, Parent: 30, Subject: api.Subject{Kind: api.KindPID, ID: strconv.Itoa(os.Getpid())}, Name: "test", Weight: 100,
			Limits: []api.Limit{{
				Owner: "bob", Direction: api.Down, BytesPerSec: 1e6, BurstNS: 10e6, Enforced: true,
				Rule: &api.RuleOrigin{Name: "night", File: "/etc/netnice/netnice.toml", Line: 7},
			}},
		},
		{
			ID: 30, Subject: api.Subject{Kind: api.KindUser, ID: "bob"}, Name: "bob", Weight: 1,
			Limits: []api.Limit{
				{Owner: "admin", Direction: api.Up, BytesPerSec: 3e6, BurstNS: 10e6, Enforced: true},
				{Owner: "bob", Direction: api.Up, BytesPerSec: 5e6, BurstNS: 10e6, Enforced: true},
			},
		},
	}
}

// examplePending is a process with a limit in force, in a unit whose limits are not, of which one would be lower.
func examplePending() []api.Node {
	limit := func(direction api.Direction, rate uint64, enforced bool) api.Limit {
		return api.Limit{Owner: "admin", Direction: direction, BytesPerSec: rate, BurstNS: 10e6, Enforced: enforced}
	}
	return []api.Node{
		{
			ID: 51, Parent: 52, Subject: api.Subject{Kind: api.KindPID, ID: strconv.Itoa(os.Getpid())}, Name: "test", Weight: 100,
			Limits: []api.Limit{limit(api.Down, 2e6, true)},
		},
		{
			ID: 52, Subject: api.Subject{Kind: api.KindUnit, ID: "x.service"}, Name: "x.service", Weight: 100,
			Limits: []api.Limit{limit(api.Up, 1e6, false), limit(api.Down, 3e6, false), limit(api.Total, 4e6, false)},
		},
	}
}

// exampleTotal is a user who only downloads under a limit on both directions together, by a rule, a process that
// nothing counts, and a unit that does not run.
func exampleTotal() []api.Node {
	return []api.Node{
		{
			ID: 41, Subject: api.Subject{Kind: api.KindUser, ID: "eve"}, Name: "eve", Weight: 100, Processes: 1, Sockets: 1,
			Limits: []api.Limit{{
				Owner: "admin", Direction: api.Total, BytesPerSec: 3e6, BurstNS: 10e6, Enforced: true,
				Rule: &api.RuleOrigin{Name: "line", File: "/etc/netnice/netnice.toml", Line: 7},
			}},
			Up: api.Usage{Bytes: 41_000, RateBytesPerSec: 20_000}, Down: api.Usage{Bytes: 6_160_000, RateBytesPerSec: 2_990_000},
			Total: &api.TotalUsage{Bytes: 6_201_000, RateBytesPerSec: 3_010_000},
		},
		{
			ID: 42, Subject: api.Subject{Kind: api.KindPID, ID: strconv.Itoa(os.Getpid())}, Name: "borg", Weight: 1, Processes: 1,
			Up: api.Usage{Uncounted: true}, Down: api.Usage{Uncounted: true},
		},
		{
			ID: 43, Subject: api.Subject{Kind: api.KindUnit, ID: "x.service"}, Name: "x.service", Weight: 100, Down: api.Usage{Uncounted: true},
			Limits: []api.Limit{{Owner: "admin", Direction: api.Up, BytesPerSec: 1e6, BurstNS: 10e6}},
		},
	}
}

// exampleTree is a host, a user in it, and two processes of the user.
func exampleTree() []api.Node {
	up := func(rate uint64) []api.Limit {
		return []api.Limit{{Owner: "admin", Direction: api.Up, BytesPerSec: rate, BurstNS: 10e6, Enforced: true}}
	}
	since := time.Date(2026, 11, 21, 20, 30, 0, 0, time.UTC)
	return []api.Node{
		{
			ID: 4, Parent: 2, Subject: api.Subject{Kind: api.KindPID, ID: "10200"}, Name: "rsync", Limits: up(1e6), Weight: 100, Processes: 2, Sockets: 3, Since: since,
			Up:   api.Usage{Bytes: 12_345_678, RateBytesPerSec: 998_000, WaitingSockets: 2, WaitingBytes: 1_200_000, WaitNS: 40e6, Held: 1},
			Down: api.Usage{Uncounted: true},
		},
		{ID: 3, Parent: 2, Subject: api.Subject{Kind: api.KindPID, ID: "990"}, Name: "evil\x1b[2J", Weight: 300, Processes: 1, Sockets: 1, Since: since, Down: api.Usage{Uncounted: true}},
		{
			ID: 2, Parent: 1, Subject: api.Subject{Kind: api.KindUser, ID: "bob"}, Name: "bob", Weight: 100, Processes: 5, Sockets: 4, Since: since,
			Limits: append(up(10e6), api.Limit{Owner: "bob", Direction: api.Up, BytesPerSec: 5e6, BurstNS: 10e6, Enforced: true}, api.Limit{Owner: "bob", Direction: api.Down, BytesPerSec: 7e6, BurstNS: 10e6, Enforced: true}),
			Down:   api.Usage{Bytes: 450_000_000, RateBytesPerSec: 6_990_000, WaitingBytes: 70_000, WaitNS: 10e6, Dropped: 3, DroppedFor: api.Drops{QueueFull: 3}},
			Up:     api.Usage{Bytes: 99_000_000, RateBytesPerSec: 1_500_000, Dropped: 42, DroppedFor: api.Drops{NoQueue: 40, Ahead: 2}},
		},
		{ID: 1, Subject: api.Subject{Kind: api.KindHost}, Name: "host", Limits: up(100e6), Weight: 100, Processes: 99, Sockets: 12, Since: since, Down: api.Usage{Uncounted: true}},
	}
}
