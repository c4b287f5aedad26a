package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// userAlone is a machine without a daemon, on which an ordinary user runs commands.
type userAlone struct{ Machine }

func (userAlone) EUID() int { return 1000 }

func (userAlone) Daemon(DaemonPlace) (RunningDaemon, bool) { return RunningDaemon{}, false }

func (userAlone) SignalDaemon(RunningDaemon, syscall.Signal, DaemonPlace) error {
	return errors.New("a signal was sent")
}

func (userAlone) Pins(string) (bool, error) { return false, nil }

func (userAlone) Exec(string, []string) error { return errors.New("it was run without its limit") }

func (userAlone) StartDetached([]string, string) (int, error) {
	return 0, errors.New("a user has started a daemon")
}

// Without a daemon, each command that would ask one prints the same error with the same exit code. Commands that only
// read or lift have found nothing; commands that set something have failed.
func TestEveryCommandWithoutDaemon(t *testing.T) {
	const (
		looks = "netnice: no daemon is running and no limit is in force\n  sudo netnice up\n"
		sets  = "netnice: no daemon is running, and only root can start one\n  sudo netnice up\n"
	)
	pid := strconv.Itoa(os.Getpid())
	table := map[string][]struct{ args, says string }{
		"netnice":              {{"", looks}, {"--json", looks}, {pid, looks}, {pid + " 1MB/s", sets}, {pid + " 1MB/s --dry-run", sets}, {pid + " 0", looks}},
		"netnice run":          {{"--up 1MB/s -- true", sets}, {"--up 1MB/s --dry-run -- true", sets}},
		"netnice set":          {{"--host --up 1MB/s", sets}, {"--host --up 1MB/s --dry-run", sets}},
		"netnice confirm":      {{"--host", looks}, {"--host --dry-run", looks}},
		"netnice unset":        {{"--host", looks}, {"--host --dry-run", looks}},
		"netnice fair":         {{"--up 1MB/s " + pid, sets}, {"--leave " + pid, sets}},
		"netnice link":         {{"eth0 --up 1MB/s", sets}},
		"netnice reserve":      {{"--pid " + pid + " --link eth0 --period 10ms --slice 2ms", sets}, {"--pid " + pid + " --cpu-period 20ms --cpu-slice 5ms", sets}, {"--pid " + pid + " --release", looks}},
		"netnice power":        {{"", looks}, {"--json", looks}, {pid, looks}, {pid + " 30", sets}, {pid + " 30 --dry-run", sets}},
		"netnice exec":         {{"30 true", sets}},
		"netnice adapt":        {{"", looks}, {"--json", looks}, {"192.0.2.7", sets}, {"192.0.2.7 off", sets}, {"192.0.2.7 --dry-run", sets}},
		"netnice ls":           {{"", looks}, {"--json", looks}, {"--watch", looks}},
		"netnice show":         {{"--host", looks}, {"--host --json", looks}},
		"netnice why":          {{pid, looks}},
		"netnice monitor":      {{"", looks}, {"--json", looks}},
		"netnice rules list":   {{"", looks}},
		"netnice rules test":   {{pid, looks}},
		"netnice rules reload": {{"", looks}},
		"netnice nlimit":       {{"", looks}, {"-o 100000", sets}},
		"netnice system":       {{"", looks}, {"--json", looks}, {"--input-meter=off", sets}},
		"netnice status":       {{"", looks}, {"--json", looks}},
		"netnice metrics":      {{"", looks}, {"--destinations", looks}},
		// These commands ask no daemon, start one, or end one.
		"netnice probe": nil, "netnice shell-init": nil, "netnice inetd": nil, "netnice rules": nil, "netnice rules check": nil, "netnice daemon": nil,
		"netnice up": nil, "netnice down": nil, "netnice doctor": nil, "netnice demo": nil, "netnice version": nil,
	}
	app, _ := testApp()
	eachCommand(app.root(), func(c *cobra.Command) {
		_, ok := table[c.CommandPath()]
		require.True(t, ok, "what does %s say where no daemon runs?", c.CommandPath())
	})
	for command, calls := range table {
		for _, call := range calls {
			var out, problems bytes.Buffer
			app := &App{
				Out: &out, Err: &problems, Getenv: func(string) string { return "" }, System: userAlone{},
				PinDir: filepath.Join(t.TempDir(), "pins"), LogPath: filepath.Join(t.TempDir(), "log"),
			}
			words := append([]string{"netnice", "--socket", filepath.Join(t.TempDir(), "none")}, strings.Fields(strings.TrimPrefix(command, "netnice"))...)
			code := app.Run(t.Context(), append(words, strings.Fields(call.args)...))
			require.Equal(t, call.says, problems.String(), "%s %s", command, call.args)
			require.Empty(t, out.String(), "%s %s", command, call.args)
			want := exitNoDaemon
			if command == "netnice run" || command == "netnice exec" {
				want = exitNotRun
			}
			require.Equal(t, want, code, "%s %s", command, call.args)
		}
	}
}
