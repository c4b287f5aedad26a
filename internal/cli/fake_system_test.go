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
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client/clienttest"
	"github.com/netnice/netnice/internal/cli"
	"github.com/netnice/netnice/internal/identity"
)

// fakeSystem is the real machine with changes that tests choose by $NETNICE_TEST_*.
type fakeSystem struct{ cli.Machine }

func (fakeSystem) EUID() int { return number("NETNICE_TEST_EUID") }

// Inherited returns the variable of the test's environment: those who run the tests may be logged in over ssh.
func (fakeSystem) Inherited(name string) string { return os.Getenv("NETNICE_TEST_" + name) }

// Daemon finds the daemon that was started last, while it runs. $NETNICE_TEST_LISTENS is the socket on which it listens
// instead of the right one.
func (fakeSystem) Daemon(cli.DaemonPlace) (cli.RunningDaemon, bool) {
	text, err := os.ReadFile(filepath.Join(os.Getenv("NETNICE_TEST_DIR"), "holder"))
	if err != nil {
		return cli.RunningDaemon{}, false
	}
	pid, err := strconv.Atoi(string(text))
	r := cli.RunningDaemon{PID: pid, Socket: cmp.Or(os.Getenv("NETNICE_TEST_LISTENS"), os.Getenv("NETNICE_SOCKET"))}
	return r, err == nil && (cli.Machine{}).Alive(pid)
}

func (fakeSystem) SignalDaemon(r cli.RunningDaemon, signal syscall.Signal, _ cli.DaemonPlace) error {
	return syscall.Kill(r.PID, signal)
}

// Containers returns the containers that $NETNICE_TEST_CONTAINERS names.
func (fakeSystem) Containers() ([]identity.Container, error) {
	var list []identity.Container
	for _, name := range strings.Fields(os.Getenv("NETNICE_TEST_CONTAINERS")) {
		list = append(list, identity.Container{Names: []string{name}})
	}
	return list, nil
}

// Processes returns all processes, or those with the ids in $NETNICE_TEST_PIDS.
func (fakeSystem) Processes() ([]identity.ProcessInfo, error) {
	all, err := (cli.Machine{}).Processes()
	if only := strings.Fields(os.Getenv("NETNICE_TEST_PIDS")); len(only) > 0 {
		all = slices.DeleteFunc(all, func(p identity.ProcessInfo) bool { return !slices.Contains(only, strconv.Itoa(p.PID)) })
	}
	return all, err
}

// Names returns the names in $NETNICE_TEST_USER, $NETNICE_TEST_UNIT or $NETNICE_TEST_LINK.
func (fakeSystem) Names(kind api.Kind) ([]string, error) {
	return strings.Fields(os.Getenv("NETNICE_TEST_" + strings.ToUpper(string(kind)))), nil
}

// HasService is true where $NETNICE_TEST_SERVICE is set.
func (fakeSystem) HasService(context.Context, string) bool {
	return os.Getenv("NETNICE_TEST_SERVICE") != ""
}

// StartService starts a daemon as systemd would, and writes its argument to a file. It fails if $NETNICE_TEST_SERVICE
// is "fails".
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

// fakeDaemon serves until a client takes it down, a signal arrives, or a minute has gone.
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
