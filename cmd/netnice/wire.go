package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"syscall"

	"github.com/coreos/go-systemd/v22/journal"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/background"
	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/cli"
	"github.com/netnice/netnice/internal/daemon"
	"github.com/netnice/netnice/internal/demo"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/doctor"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/pacing"
	"github.com/netnice/netnice/internal/enforce/shaping"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/rules"
	"github.com/netnice/netnice/internal/sparethreads"
)

// app returns netnice on the real machine.
func app() *cli.App {
	// A variable of the journal without a valid value counts as missing.
	journalled, _ := journal.StderrIsJournalStream()
	return &cli.App{
		Out:      os.Stdout,
		Err:      os.Stderr,
		Getenv:   os.Getenv,
		System:   cli.Machine{DaemonFinder: byLocks{}},
		Parts:    parts(),
		LogPath:  cli.DefaultLogPath,
		PinDir:   cli.DefaultPinDir,
		RulesDir: rules.DefaultDir,
		Release:  cli.Release(),
		Journal:  journalled,
	}
}

// byLocks finds a daemon by its locks.
type byLocks struct{}

// locks returns the files and folders that the daemon of a place has locked.
func locks(at cli.DaemonPlace) []string {
	return append(daemon.Locks(at.Socket, at.StateDir), at.PinDir)
}

// of returns the socket of the daemon that holds a lock, "" if it is not known.
func (byLocks) of(lock string) string {
	r, _ := daemon.FindRunning(lock)
	return r.Socket
}

// Daemon implements cli.DaemonFinder. It asks the kernel for the holder of the locks.
func (byLocks) Daemon(at cli.DaemonPlace) (cli.RunningDaemon, bool) {
	r, found := daemon.FindRunning(locks(at)...)
	return cli.RunningDaemon(r), found
}

// SignalDaemon implements cli.DaemonFinder. It looks at the holder of the locks once more.
func (byLocks) SignalDaemon(r cli.RunningDaemon, signal syscall.Signal, at cli.DaemonPlace) error {
	return daemon.SignalRunning(daemon.Running(r), signal, locks(at)...)
}

// parts connects the commands with the packages that do the work.
func parts() cli.Parts {
	return cli.Parts{
		Daemon: runDaemon,
		Guard:  runGuard,
		Down:   downWithoutDaemon,
		Unused: shaping.Unused,
		Doctor: examine,
		Demo: func(ctx context.Context, o cli.DemoOptions) error {
			return demo.Run(ctx, demo.Options{JSON: o.JSON, Out: o.Out, Interactive: demo.Interactive(o.Out)})
		},
	}
}

// spareThreads is how many calls of the daemon may wait in the kernel while no process can be made.
const spareThreads = 32

func runDaemon(ctx context.Context, o cli.DaemonOptions) error {
	if !o.OnDemand {
		background.RaisePriority()
	}
	if err := sparethreads.Make(spareThreads); err != nil {
		o.Logger.Warn("threads are not made in advance", "err", err)
	}
	return daemon.Run(ctx, daemon.Options{
		SocketPath: o.SocketPath, StateDir: o.StateDir, OnDemand: o.OnDemand, Release: o.Release, Logger: o.Logger,
		Identity: identity.Options{CgroupRoot: o.CgroupRoot},
		RulesDir: o.ConfigDir, Hangup: o.Hangup, AdminGroup: o.AdminGroup,
		OpenKernel: func() (enforce.Kernel, error) {
			options, err := kernelOptions(o)
			if err != nil {
				return nil, err
			}
			k, err := shaping.Open(options)
			if err != nil {
				return nil, besideAnother(err, byLocks{}.of) // not k: a nil *Kernel is not a nil enforce.Kernel
			}
			return k, nil
		},
	})
}

// besideAnother completes the error of a kernel side that another netnice uses, with what uses or ends that one. find
// finds the socket of the daemon that holds a lock.
func besideAnother(err error, find func(lock string) (socket string)) error {
	var up *pacing.UpError
	var inUse *pacing.InUseError
	answer := &api.Error{Code: api.CodeInternal, Message: err.Error(), Cause: err}
	socket := ""
	switch {
	case errors.As(err, &up):
		answer.Message, answer.Hint = up.Error(), up.Hint()
		socket = find(up.PinDir)
	case errors.As(err, &inUse):
		answer.Hint, socket = inUse.Hint(), find(inUse.Dir)
	default:
		return err
	}
	if socket != "" {
		answer.Hint = strings.ReplaceAll(answer.Hint, bpf.ItsSocket, socket)
	}
	return answer
}

// downWithoutDaemon removes pins, and the state that would bring limits back.
func downWithoutDaemon(ctx context.Context, o cli.DaemonOptions) error {
	options, err := kernelOptions(o)
	if err != nil {
		return err
	}
	if err := shaping.Down(options); err != nil {
		return fmt.Errorf("lift what stands in the kernel: %w", err)
	}
	// If CPU shares cannot be lifted, the list of their processes stays on the disk.
	lifted := daemon.LiftPowers(ctx, o.StateDir, nil)
	return errors.Join(lifted, daemon.ForgetState(o.StateDir, lifted != nil))
}

// examine reports the features of the machine, and the faults of netnice's files and devices on it.
func examine(ctx context.Context) api.Report {
	report := doctor.Run(ctx)
	report.Checks = append(report.Checks, doctor.Installed(lookAtInstallation(ctx))...)
	return report
}

// lookAtInstallation finds netnice's files and devices, which the package doctor judges.
func lookAtInstallation(ctx context.Context) doctor.Installation {
	i, boot := doctor.Installation{}, ""
	resolver, err := identity.New(identity.Options{})
	if err == nil {
		boot, err = resolver.BootID()
	}
	if err == nil {
		err = desired.Check(cli.DefaultStateDir, boot)
	}
	i.State, i.Damaged = err, daemon.Damaged(cli.DefaultStateDir)
	if os.Geteuid() != 0 {
		i.UnusedErr = fs.ErrPermission
		return i
	}
	i.Unused, i.UnusedErr = shaping.Unused(ctx, false)
	return i
}

// kernelOptions finds where cgroup v2 is mounted, unless o says so.
func kernelOptions(o cli.DaemonOptions) (pacing.Options, error) {
	root := o.CgroupRoot
	if root == "" {
		resolver, err := identity.New(identity.Options{})
		if err != nil {
			return pacing.Options{}, fmt.Errorf("look at processes: %w", err)
		}
		if root, err = resolver.CgroupRoot(); err != nil {
			return pacing.Options{}, err
		}
	}
	logger := o.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return pacing.Options{
		PinDir: o.PinDir, CgroupRoot: root, Beside: o.Beside, Preload: o.Preload, Logger: logger,
		StartGuard: func() (pacing.Guard, error) { return background.StartGuard(o.PinDir, root) },
	}, nil
}

func runGuard(_ context.Context, o cli.DaemonOptions) error {
	return pacing.RunGuard(bpf.Options{PinDir: o.PinDir, CgroupRoot: o.CgroupRoot, Logger: o.Logger}, os.Stdin)
}
