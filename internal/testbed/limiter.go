package testbed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// Limiter limits the egress of programs, in IP bytes per second. A second call changes the limit. Lifting a limit
// that does not exist is an error.
type Limiter interface {
	LimitPID(ctx context.Context, pid int, bytesPerSec uint64) error
	LimitUser(ctx context.Context, uid uint32, bytesPerSec uint64) error
	LiftPID(ctx context.Context, pid int) error
	LiftUser(ctx context.Context, uid uint32) error
}

// Beside is the environment setting that lets netnice start although another instance is up.
const Beside = "NETNICE_BESIDE=1"

// Command is a Limiter that runs the netnice program, as its users do. Without a daemon the program starts one that
// leaves with its last limit. Other daemons, of tests or of the user, may coexist.
type Command struct {
	Path string // path of the program
}

var _ Limiter = Command{}

// LimitPID limits a process with its children.
func (c Command) LimitPID(ctx context.Context, pid int, bytesPerSec uint64) error {
	return c.Run(ctx, "set", "--pid", strconv.Itoa(pid), "--up", rate(bytesPerSec))
}

// LimitDownPID limits the ingress of a process with its children.
func (c Command) LimitDownPID(ctx context.Context, pid int, bytesPerSec uint64) error {
	return c.Run(ctx, "set", "--pid", strconv.Itoa(pid), "--down", rate(bytesPerSec))
}

// LimitUser limits all processes of a user together.
func (c Command) LimitUser(ctx context.Context, uid uint32, bytesPerSec uint64) error {
	return c.Run(ctx, "set", "--user", strconv.FormatUint(uint64(uid), 10), "--up", rate(bytesPerSec))
}

// LimitDownUser limits the ingress of all processes of a user together.
func (c Command) LimitDownUser(ctx context.Context, uid uint32, bytesPerSec uint64) error {
	return c.Run(ctx, "set", "--user", strconv.FormatUint(uint64(uid), 10), "--down", rate(bytesPerSec))
}

// LiftPID lifts the limit of a process.
func (c Command) LiftPID(ctx context.Context, pid int) error {
	return c.Run(ctx, "unset", "--pid", strconv.Itoa(pid))
}

// LiftUser lifts the limit of a user.
func (c Command) LiftUser(ctx context.Context, uid uint32) error {
	return c.Run(ctx, "unset", "--user", strconv.FormatUint(uint64(uid), 10))
}

// Running says whether a daemon runs. Any other error counts as no.
func (c Command) Running(ctx context.Context) bool {
	return c.Run(ctx, "status") == nil
}

// Run runs netnice with these arguments; the error holds its output.
func (c Command) Run(ctx context.Context, args ...string) error {
	_, err := c.Output(ctx, args...)
	return err
}

// Output is Run that returns the output of netnice.
func (c Command) Output(ctx context.Context, args ...string) ([]byte, error) {
	var out, problem bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Path, args...)
	cmd.Args[0] = "netnice"
	cmd.Env = append(os.Environ(), Beside)
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		err = fmt.Errorf("netnice %s: %w", strings.Join(args, " "), err)
		if said := strings.TrimSpace(problem.String()); said != "" {
			err = fmt.Errorf("%w\n%s", err, said)
		}
		return nil, err
	}
	return out.Bytes(), nil
}

// rate writes a rate in a unit that needs no rounding.
func rate(bytesPerSec uint64) string { return strconv.FormatUint(bytesPerSec, 10) + "B/s" }
