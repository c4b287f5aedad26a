package cli

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/background"
	"github.com/netnice/netnice/internal/rules"
)

// These are the folders and files of a daemon without flags.
const (
	DefaultStateDir = "/var/lib/netnice"
	DefaultPinDir   = "/sys/fs/bpf/netnice"
	DefaultLogPath  = "/var/log/netnice-daemon.log"
	// DefaultAdminGroup is used if there is a group of that name.
	DefaultAdminGroup = "netnice"
)

// daemonFlags are the flags for the folders of a daemon, and for a daemon beside another one.
type daemonFlags struct {
	stateDir, cgroupRoot, configDir string
	beside                          bool
}

func (f *daemonFlags) add(a *App, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.stateDir, "state-dir", DefaultStateDir, "`folder` of what is to outlive a reboot")
	flags.StringVar(&a.PinDir, "pin-dir", a.PinDir, "`folder` under a bpf file system, for what is to outlive the daemon")
	flags.StringVar(&f.cgroupRoot, "cgroup-root", "", "`folder` where cgroup v2 is mounted, if not the usual")
}

// addConfig adds the flag of commands that start a daemon that follows rules.
func (f *daemonFlags) addConfig(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.configDir, "config-dir", rules.DefaultDir, "`folder` of the administrator's rules")
}

// addBeside adds the flag of commands that may start a daemon beside another one.
// The variable reaches daemons that set and run start, too.
func (f *daemonFlags) addBeside(a *App, cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.beside, "beside", a.Getenv("NETNICE_BESIDE") != "",
		"for tests: come up beside another netnice, though limits on the same socket disturb each other (also $NETNICE_BESIDE)")
}

// usual reports whether these flags, given to a command, leave everything where the service has it.
func (f *daemonFlags) usual(cmd *cobra.Command) bool {
	for _, name := range []string{"state-dir", "pin-dir", "cgroup-root", "config-dir"} {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed {
			return false
		}
	}
	return !f.beside
}

// args passes the flags on.
func (f *daemonFlags) args() []string {
	args := []string{"--state-dir=" + f.stateDir}
	if f.cgroupRoot != "" {
		args = append(args, "--cgroup-root="+f.cgroupRoot)
	}
	if f.configDir != rules.DefaultDir && f.configDir != "" {
		args = append(args, "--config-dir="+f.configDir)
	}
	if f.beside {
		args = append(args, "--beside")
	}
	return args
}

func (a *App) daemon() *cobra.Command {
	var where daemonFlags
	var onDemand, preload, verbose, detached bool
	var log, adminGroup string
	cmd := &cobra.Command{
		Use:   "daemon",
		Short: "Serve, in the foreground",
		Long: `Keep limits in force and answer the other commands, until interrupted. The
limits outlive it: netnice down lifts them. For the background see netnice up.
SIGHUP has it read the files of rules again.`,
		Args: between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.System.EUID() != 0 {
				return failWith(exitDenied, "sudo netnice up", "only root can run the daemon")
			}
			if detached {
				return a.background(cmd, log)
			}
			background.NameProcess()
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			hangup := make(chan os.Signal, 1)
			signal.Notify(hangup, syscall.SIGHUP)
			defer signal.Stop(hangup)
			out := a.Err
			if cmd.Flags().Changed("log") { // detached: its output is that file
				file, err := background.OpenLog(log, background.MostLogBytes, 1, 2)
				if err != nil {
					return err
				}
				out = file
			}
			logger := a.logger(out, level)
			err := a.Parts.Daemon(ctx, DaemonOptions{
				SocketPath: a.socket, StateDir: where.stateDir, PinDir: a.PinDir, CgroupRoot: where.cgroupRoot,
				AdminGroup: adminGroup,
				OnDemand:   onDemand, Preload: preload && !onDemand, Beside: where.beside, ConfigDir: where.configDir, Hangup: hangup, Release: a.Release, Logger: logger,
			})
			if isCode(err, api.CodeConflict) {
				logger.Warn("netnice does not start", "code", api.CodeConflict) // start looks for it
			}
			return err
		},
	}
	where.add(a, cmd)
	where.addBeside(a, cmd)
	where.addConfig(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&onDemand, "on-demand", false, "end when the last limit is gone")
	flags.BoolVar(&preload, "preload", true, "load the kernel programs for received and for non-TCP traffic at the start, not with the first limit that needs them; never with --on-demand")
	flags.StringVar(&adminGroup, "admin-group", DefaultAdminGroup, "`group` whose members may do what root may; \"\" for none")
	flags.BoolVarP(&verbose, "verbose", "v", false, "log more")
	flags.BoolVar(&detached, "background", false, "start it detached, print its pid, and end")
	flags.StringVar(&log, "log", a.LogPath, "`file` for the log of a daemon in the background")
	for _, name := range []string{"background", "log"} {
		_ = flags.MarkHidden(name)
	}
	return cmd
}

// background starts the same command once more, without --background and
// detached; see background.Start.
func (a *App) background(cmd *cobra.Command, log string) error {
	args := []string{"daemon", "--socket", a.socket, "--pin-dir", a.PinDir, "--log=" + log}
	for _, name := range []string{"state-dir", "cgroup-root", "config-dir", "admin-group", "on-demand", "preload", "beside", "verbose"} {
		if f := cmd.Flags().Lookup(name); f.Changed {
			args = append(args, "--"+name+"="+f.Value.String())
		}
	}
	pid, err := background.Detach(args, log)
	if err != nil {
		foreground := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return strings.HasPrefix(arg, "--log=") })
		return failWith(exitFailed, "netnice "+strings.Join(foreground, " ")+"  runs it in the foreground", "%v", err)
	}
	fmt.Fprintln(a.Out, pid)
	return nil
}
