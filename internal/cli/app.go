// Package cli is the netnice command. It turns flags into calls of the client, and the answers into text or JSON. Each
// verb has a file. The package owns wording, exit codes and the start of a daemon where none runs. It decides nothing
// about limits, and never touches the kernel except through Parts.
//
// Exit codes: 0 done; 1 netnice failed, or doctor found something missing; 2 wrong usage; 3 the named subject does not
// exist; 4 the caller may not do this; 5 no daemon answers. Commands that run another command have the exit code of
// that one. Their own exit codes are those of env(1): 125 netnice failed, for any reason; 126 the command cannot be
// run; 127 the command was not found.
package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/units"
)

// Exit codes of netnice's own.
const (
	exitOK        = 0
	exitFailed    = 1 // also: doctor or rules found a fault
	exitUsage     = 2
	exitNoSubject = 3
	exitDenied    = 4
	exitNoDaemon  = 5
	exitNotRun    = 125 // commands that run another one have this code in place of 1 to 5
	exitCannotRun = 126
	exitNotFound  = 127
)

// DaemonOptions holds the flags of `netnice daemon`.
type DaemonOptions struct {
	SocketPath string
	StateDir   string
	PinDir     string
	CgroupRoot string // "" = where cgroup v2 is mounted
	OnDemand   bool
	Preload    bool   // all kernel programs are loaded at the start
	AdminGroup string // the members of this group have the rights of root
	Beside     bool   // another netnice may be up
	ConfigDir  string // the folder of the administrator's rules
	Hangup     <-chan os.Signal
	Release    string
	Logger     *slog.Logger
}

// DemoOptions holds the flags of `netnice demo`.
type DemoOptions struct {
	JSON bool
	Out  io.Writer
}

// Parts are the pieces of netnice that commands run in this very process.
type Parts struct {
	// Daemon serves until its context ends, or, on demand, until the last
	// limit is gone.
	Daemon func(context.Context, DaemonOptions) error
	// Guard waits for the end of a daemon. Then it moves the egress hook to the root cgroup if the daemon left it
	// below.
	Guard func(context.Context, DaemonOptions) error
	// Down lifts all limits where no daemon runs.
	Down func(context.Context, DaemonOptions) error
	// Unused returns the names of netnice's devices that no netnice uses any more; with remove it removes them.
	Unused func(ctx context.Context, remove bool) ([]string, error)
	// Doctor reports the features of the machine that netnice needs.
	Doctor func(context.Context) api.Report
	// Demo shows limits at work, in network namespaces of its own.
	Demo func(context.Context, DemoOptions) error
}

// App is one invocation of netnice. All fields but those of flags must be set.
type App struct {
	Out, Err io.Writer
	Getenv   func(string) string
	System   System
	Parts    Parts
	// LogPath is where a daemon that a command starts writes its log.
	LogPath string
	PinDir  string
	// RulesDir is where the administrator's rules are.
	RulesDir string
	Release  string
	Journal  bool // Err is the journal, which takes a priority before each line

	socket string
	proc   string // where procfs is; "" = /proc
	units  units.System
}

// Run interprets args, of which the first is the name that netnice was called
// by, and returns the exit code.
func (a *App) Run(ctx context.Context, args []string) int {
	build := a.root
	if len(args) > 0 && filepath.Base(args[0]) == "nlimit" {
		build = a.nlimit
	}
	cmd := build()
	a.persistent(cmd)
	cmd.SetArgs(markPriorities(args[min(1, len(args)):])) // never nil, or cobra takes os.Args
	cmd.SetOut(a.Out)
	cmd.SetErr(a.Err)
	cmd.SetHelpFunc(a.help)
	plainUsage(cmd)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetFlagErrorFunc(flagFailure)
	cmd.PersistentPreRun = func(cmd *cobra.Command, _ []string) { a.noteFlagRates(cmd) }
	called, err := cmd.ExecuteContextC(ctx)
	code := a.report(err)
	if runsCommand(called) && exitFailed <= code && code <= exitNoDaemon {
		return exitNotRun
	}
	return code
}

// runsCommand reports whether a command becomes another program. The exit codes are those of that program then.
func runsCommand(cmd *cobra.Command) bool {
	return slices.Contains([]string{"run", "exec", "inetd-session"}, cmd.Name())
}

func (a *App) root() *cobra.Command {
	cmd := a.here()
	cmd.AddCommand(
		a.run(), a.set(), a.confirm(), a.unset(), a.fair(), a.link(), a.reserve(), a.power(), a.exec(), a.probe(), a.adapt(), a.shellInit(), a.shellLine(), a.inetd(), a.inetdSession(), a.ls(), a.show(), a.why(), a.monitor(), a.rules(), a.nlimit(), a.systemSettings(),
		a.daemon(), a.guard(), a.up(), a.down(), a.status(), a.metrics(), a.doctor(), a.demo(), a.version(), a.gen(),
	)
	return cmd
}

// plainUsage keeps cobra from adding "[flags]" to usage lines, which say better.
func plainUsage(cmd *cobra.Command) {
	cmd.DisableFlagsInUseLine = true
	for _, c := range cmd.Commands() {
		plainUsage(c)
	}
}

// socketFlag is the value of --socket, which is never empty.
type socketFlag string

func (p *socketFlag) String() string { return string(*p) }
func (p *socketFlag) Type() string   { return "string" }

func (p *socketFlag) Set(text string) error {
	if text == "" {
		return fmt.Errorf("a path is missing, such as %s", client.DefaultSocket)
	}
	*p = socketFlag(text)
	return nil
}

// persistent adds the flags that every command takes.
func (a *App) persistent(cmd *cobra.Command) {
	socket := a.Getenv("NETNICE_SOCKET")
	if socket == "" {
		socket = client.DefaultSocket
	}
	flags := cmd.PersistentFlags()
	a.socket = socket
	flags.Var((*socketFlag)(&a.socket), "socket", "unix `socket` of the daemon (also $NETNICE_SOCKET)")
	flags.Var(&a.units, "units", "print rates and volumes in bytes or bits")
	_ = cmd.RegisterFlagCompletionFunc("units", cobra.FixedCompletions([]string{"bytes", "bits"}, cobra.ShellCompDirectiveNoFileComp))
}
