// Package cli is the netnice command. It turns flags into calls of the client, and the answers into text or JSON. Each
// verb has a file. The package owns wording, exit codes and the start of a daemon where none runs. It decides nothing
// about limits, and never touches the kernel except through Parts.
package cli

import (
	"cmp"
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

// Exit codes of netnice's own. docs/reference/exit-codes.md has these comments.
const (
	exitOK        = 0   // It is done, or the reader of the output has gone.
	exitFailed    = 1   // It failed. Or doctor found something missing, or rules found a mistake in a file.
	exitUsage     = 2   // Wrong usage: an argument, or a file that an argument names, makes no sense.
	exitNoSubject = 3   // A process, user, host, limit or file of that name does not exist.
	exitDenied    = 4   // The caller may not do this.
	exitNoDaemon  = 5   // No daemon is running, or none answers.
	exitNotRun    = 125 // netnice failed for any reason, before it ran the command.
	exitCannotRun = 126 // The command cannot be run.
	exitNotFound  = 127 // The command was not found.
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
	// Daemon serves until its context ends, or, on demand, until the last limit is gone.
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

// Run interprets args, whose first is the name that netnice was called by, and returns the exit code.
func (a *App) Run(ctx context.Context, args []string) int {
	build := a.root
	if len(args) > 0 && filepath.Base(args[0]) == "nlimit" {
		build = a.nlimit
	}
	cmd := a.prepared(build())
	cmd.SetArgs(markPriorities(args[min(1, len(args)):])) // never nil, or cobra takes os.Args
	cmd.SetOut(a.Out)
	cmd.SetErr(a.Err)
	cmd.SetHelpFunc(a.help)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetFlagErrorFunc(flagFailure)
	cmd.PersistentPreRun = func(cmd *cobra.Command, _ []string) { a.noteFlagRates(cmd) }
	called, err := cmd.ExecuteContextC(ctx)
	code := a.report(err)
	if RunsCommand(called) && exitFailed <= code && code <= exitNoDaemon {
		return exitNotRun
	}
	return code
}

// RunsCommand reports whether a command becomes another program. The exit codes are those of that program then.
func RunsCommand(cmd *cobra.Command) bool {
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

// Commands returns netnice and nlimit with all their commands, for documents.
func (a *App) Commands() []*cobra.Command {
	return []*cobra.Command{a.prepared(a.root()), a.prepared(a.nlimit())}
}

// prepared returns a program with the flags and usage lines of all its commands.
func (a *App) prepared(cmd *cobra.Command) *cobra.Command {
	a.persistent(cmd)
	plainUsage(cmd)
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
	flags := cmd.PersistentFlags()
	a.socket = cmp.Or(a.Getenv("NETNICE_SOCKET"), client.DefaultSocket)
	flags.Var((*socketFlag)(&a.socket), "socket", "unix `socket` of the daemon (also $NETNICE_SOCKET)")
	flags.Var(&a.units, "units", "print rates and volumes in bytes or bits")
	_ = cmd.RegisterFlagCompletionFunc("units", cobra.FixedCompletions([]string{"bytes", "bits"}, cobra.ShellCompDirectiveNoFileComp))
}
