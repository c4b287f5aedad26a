package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/inetd"
	"github.com/netnice/netnice/internal/limit"
)

func (a *App) inetd() *cobra.Command {
	var most int
	var verbose, check bool
	var rates rateFlags
	cmd := &cobra.Command{
		Use:   "inetd [@RATE] [--total RATE] [--up RATE] [--down RATE] [--sessions N] [--check] CONF",
		Short: "Serve what a file like inetd.conf says, with limits on sessions and on all together",
		Long: `Listen, and start a program for each connection, as inetd does, from a file with
a line for each service:

  ftp    stream tcp nowait    root /usr/sbin/ftpd ftpd -l @128Kbyte/sec
  tftp   dgram  udp wait      nobody /usr/sbin/tftpd tftpd /srv
  echo   stream tcp nowait/9  root internal

nowait.40 starts 40 programs in a minute at most; nowait/10 has 10 at a time, and nowait/10/20/2
of each client starts 20 in a minute and has 2 at a time.
A rate as the last word limits each session of the service, with all that it starts, in and out together.
With --total, or @RATE, all sessions share a limit: each has an equal part, or, if that is less, its
service's rate; what one does not use the others have at once. A changed file is
read with SIGHUP; sessions go on, also when inetd ends. Sockets that systemd has opened
(LISTEN_FDS) are used.`,
		Example: "  sudo netnice inetd --total 512Kbyte/sec /etc/inetd.conf",
		Args:    between(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				if err := rates.takeTotal(args[0]); err != nil {
					return err
				}
				a.warn(rateNotes(rates.total.text, true))
				args = args[1:]
			}
			services, err := readServices(args[0])
			if err != nil {
				return err
			}
			if check {
				fmt.Fprintf(a.Out, "%s: %s, no problem\n", args[0], count(len(services), "service"))
				return nil
			}
			if a.System.EUID() != 0 {
				return failWith(exitDenied, "sudo netnice inetd ...", "only root can start the programs of other users")
			}
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			server := &inetd.Server{
				Log: a.logger(a.Err, level), Most: most, Inherited: inetd.Activated(),
				Session: func(s inetd.Service) *exec.Cmd { return a.sessionCommand(s) },
			}
			if w := rates.wish(); w != (api.Wish{}) {
				if _, err := a.send(cmd.Context(), api.SetRequest{Subject: pidSubject(os.Getpid()), Wish: w}); err != nil {
					return err
				}
			}
			return serveServices(cmd.Context(), server, services, args[0])
		},
	}
	flags := cmd.Flags()
	rates.add(cmd, "all sessions")
	flags.IntVar(&most, "sessions", 1000, "at a time, at most `N`; others wait; 0 = any number")
	flags.BoolVar(&check, "check", false, "only look for mistakes in the file")
	flags.BoolVarP(&verbose, "verbose", "v", false, "log each session, too")
	return cmd
}

func readServices(path string) ([]inetd.Service, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, failWith(exitNoSubject, "netnice inetd --help has an example", "there is no file %s", path)
	case err != nil:
		return nil, err
	}
	defer f.Close()
	services, err := inetd.Parse(f, account.Machine())
	var problems inetd.Problems
	if errors.As(err, &problems) {
		const shown = 10
		var remedy strings.Builder
		for _, p := range problems[:min(len(problems), shown)] {
			fmt.Fprintf(&remedy, "%s:%d: %s\n  %s\n", path, p.Line, printable(p.Text), p.Remedy)
		}
		return nil, fail(remedy.String()+"netnice inetd --check "+path+" when it is mended", "%s: %v", path, problems)
	}
	return services, err
}

// serveServices serves until it is interrupted, and reads the file again with SIGHUP.
func serveServices(ctx context.Context, server *inetd.Server, services []inetd.Service, path string) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	defer signal.Stop(again)
	if err := server.Serve(ctx, services); err != nil {
		return errors.Join(err, server.Close())
	}
	server.Log.Info("serving", "services", len(services), "file", path)
	for {
		select {
		case <-ctx.Done():
			return server.Close()
		case <-again:
		}
		services, err := readServices(path)
		if err == nil {
			err = server.Serve(ctx, services)
		}
		if err != nil {
			server.Log.Error("the file was read again, with mistakes", "err", err)
			continue
		}
		server.Log.Info("read again", "services", len(services), "file", path)
	}
}

// sessionCommand returns the command that begins a session. It is netnice itself, which limits itself, changes to the
// service's user, and then becomes the service's program.
func (a *App) sessionCommand(s inetd.Service) *exec.Cmd {
	args := []string{"--socket", a.socket, "inetd-session", strconv.FormatUint(s.RateBytesPerSec, 10), s.User, s.Group, s.Server}
	cmd := exec.Command("/proc/self/exe", append(args, s.Args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals for inetd do not reach its sessions
	return cmd
}

// inetdSession is the command with which a session begins.
func (a *App) inetdSession() *cobra.Command {
	session := &cobra.Command{
		Use:    "inetd-session BYTES-PER-SECOND USER GROUP PROGRAM ARGV...",
		Short:  "Begin a session of netnice inetd",
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			a.Err = io.Discard // standard error is the client's connection
			const fixed = 4
			if len(args) <= fixed {
				return fail("netnice inetd --help", "this is how netnice inetd starts programs")
			}
			rate, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil {
				return err
			}
			a.limitSession(cmd.Context(), rate)
			if err := inetd.Become(cmd.Context(), account.Machine(), args[1], args[2]); err != nil {
				return err
			}
			return unix.Exec(args[3], args[fixed:], os.Environ())
		},
	}
	session.Flags().SetInterspersed(false) // flags behind the program are for the program
	return session
}

// limitSession makes this process share the enclosing limit as one of the sessions, and sets the session's own limit.
// If that fails, the limit of all sessions holds alone.
func (a *App) limitSession(ctx context.Context, rate uint64) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	weight := uint32(limit.DefaultWeight)
	request := api.SetRequest{Subject: pidSubject(os.Getpid()), Wish: api.Wish{Weight: &weight}}
	if rate != 0 {
		request.Wish.TotalBytesPerSec = &rate
	}
	_, _ = a.send(ctx, request) // after a failure the session has no limit of its own
}
