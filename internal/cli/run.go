package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
)

func (a *App) run() *cobra.Command {
	var wish wishFlags
	var to toFlags
	var span forFlag
	var scope, dryRun bool
	cmd := &cobra.Command{
		Use:   "run [--up RATE] [--down RATE] [--total RATE] [--min RATE] [--min-down RATE] [--dscp MARK] [--weight N|--background|--interactive] [--scope] [--for TIME] [--to PREFIX[:PORT]|--to-file FILE [--except PREFIX] [--protocol tcp|udp]] [--] CMD [ARGS]",
		Short: "Run a command under a limit",
		Long: `Run a command, and whatever it starts, under a limit. netnice becomes the
command, so that its exit status, its signals and its terminal are its own; the
limit ends with its last process and connection. With a limit on what is sent
the command begins when the queue for its UDP is there, after half a second at
most. Without a daemon, root starts one that leaves with its last limit.

Exit codes: 125 netnice failed, whatever the reason, 126 the command cannot be
run, 127 it was not found, else the command's.

` + rateHelp,
		Example: "  netnice run --up 500kB/s -- rsync -a ~/photos backup:\n  netnice run --down 2MB/s -- curl -O https://example.org/large.iso\n  netnice run --total 20mbit --scope -- firefox\n  netnice run --to any --except 192.168.0.0/16 --down 2MB/s -- firefox",
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := wish.wish("netnice run --up 10MB/s -- CMD ARGS")
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return fail("netnice run --up 10MB/s -- CMD ARGS", "no command given")
			}
			subject := pidSubject(a.System.PID())
			if to.given() {
				if subject, err = to.subject([]api.Subject{subject}); err != nil {
					return err
				}
			}
			path, err := a.System.LookPath(args[0])
			if err != nil {
				return cannotRun(args[0], err)
			}
			prefixes, err := a.prefixes(to)
			if err != nil {
				return err
			}
			request := api.SetRequest{Subject: subject, Wish: w, ForNS: span.ns(), Scope: scope, Prefixes: prefixes, DryRun: dryRun}
			if dryRun {
				return a.apply(cmd.Context(), request, false)
			}
			response, err := a.send(cmd.Context(), request)
			if err != nil {
				return err
			}
			a.warn(response.Warnings)
			return cannotRun(args[0], a.System.Exec(path, args))
		},
	}
	cmd.Flags().SetInterspersed(false) // flags behind CMD are for CMD
	wish.add(cmd)
	to.add(cmd)
	span.add(cmd)
	cmd.Flags().BoolVar(&scope, "scope", false, "limit a cgroup of its own, for programs whose children leave the process tree")
	dryRunFlag(cmd, &dryRun)
	return cmd
}

// cannotRun returns the error for a command that was not found or could not be run, with the exit code that shells
// give.
func cannotRun(name string, cause error) error {
	var at *exec.Error
	if errors.As(cause, &at) {
		cause = at.Err // the message has the name already
	}
	f := &failure{message: fmt.Sprintf("run %s: %v", name, cause), code: exitCannotRun, cause: cause}
	switch {
	case errors.Is(cause, exec.ErrNotFound), errors.Is(cause, fs.ErrNotExist):
		f.code, f.message = exitNotFound, "run "+name+": not found"
		f.hint = "is it installed, and in $PATH?"
	case errors.Is(cause, fs.ErrPermission):
		f.hint = "is it a program, and executable? chmod +x"
	case errors.Is(cause, unix.ENOEXEC):
		f.hint = "a script needs a first line such as #!/bin/sh"
	}
	return f
}
