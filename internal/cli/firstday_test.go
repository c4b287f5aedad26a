package cli_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/client/clienttest"
	"github.com/netnice/netnice/internal/cli"
)

// examplePID is a process in the commands, and exampleProgram one that runs there.
var (
	examplePID     = regexp.MustCompile(`\b47\d\d\b`)
	exampleProgram = regexp.MustCompile(`\bname:[a-z]+\b`)
	// needsMore are commands that talk to hosts, run until a signal, or need a daemon that reads rules (the script
	// "always"); TestReadmeCommands reads them.
	needsMore = regexp.MustCompile(`^netnice (probe|inetd|monitor) | --measure | --always\b`)
)

// Each command in README.md's blocks, and in the guide's list, succeeds, as a shell runs it. The other programs in them are
// ones that do nothing, and there are none but those.
func TestFirstDay(t *testing.T) {
	program, err := exec.LookPath("netnice")
	require.NoError(t, err)
	bin := t.TempDir()
	require.NoError(t, os.Symlink(program, filepath.Join(bin, "netnice")))
	for name, text := range map[string]string{"sudo": "exec \"$@\"\n", "rsync": "", "borg": "", "apt-get": ""} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text), 0o700))
	}
	served := clienttest.New()
	served.SetWhy(exampleWhy())
	env := append(serve(t, served), "PATH="+bin, "HOME="+bin, "NETNICE_TEST_CONTAINERS=web-1", "NETNICE_TEST_USER=bob", "NETNICE_TEST_LINK=eth0 ppp0")
	running := map[string]string{} // process ids, by the process id in the documents
	for _, line := range cli.ReadmeCommands(t) {
		if needsMore.MatchString(line) {
			continue
		}
		line = examplePID.ReplaceAllStringFunc(line, func(pid string) string {
			if running[pid] == "" {
				running[pid] = startProgram(t, "nnsleeper")
			}
			return running[pid]
		})
		line = exampleProgram.ReplaceAllString(line, "name:nnsleeper")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
		cmd.Env, cmd.Dir = env, bin
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil {
			t.Errorf("%s\n%v: %s", line, err, strings.TrimSpace(string(out)))
		}
	}
	require.Len(t, running, 6, "processes in the documents")
	require.Greater(t, len(served.Requests()), 10)
}
