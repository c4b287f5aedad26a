package arch

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/netnice/netnice/api"
)

// afterInstallation runs a package's script for the time after its installation, on a machine with systemd. The
// daemon that answers is process 70, and the service's daemon is another process or the same. It returns the output.
func afterInstallation(t *testing.T, script, servicePID string, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	text, err := exec.Command("sh", "../../contrib/package/script.sh", script).Output() // the script in the form that the package has
	if err != nil {
		t.Fatal(err)
	}
	here := strings.ReplaceAll(string(text), "/run/systemd/system", dir)
	status, err := json.MarshalIndent(api.Status{PID: 70}, "", "  ") // the format of netnice status --json
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{
		"netnice":   "cat <<'END'\n" + string(status) + "\nEND",
		"systemctl": `case "$*" in *MainPID*) echo ` + servicePID + ` ;; esac`,
	}
	for _, name := range []string{"systemd-sysusers", "getent", "groupadd", "deb-systemd-helper", "deb-systemd-invoke"} {
		programs[name] = "exit 0"
	}
	for name, does := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+does+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", append([]string{"-c", here, "sh"}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// An upgrade replaces the service's daemon. If another daemon runs, the package says that it did not replace that one,
// and names the command that does.
func TestUpgradeNamesOtherDaemon(t *testing.T) {
	for script, args := range map[string][]string{
		"../../contrib/package/deb/postinst": {"configure", "0.1"},
		"../../contrib/package/rpm/post.sh":  {"2"},
	} {
		const want = "the daemon that runs (pid 70) is not the service's, and was not replaced; as root, netnice up --replace"
		for servicePID, told := range map[string]bool{"70": false, "80": true, "0": true} {
			out := afterInstallation(t, script, servicePID, args...)
			if strings.Contains(out, want) != told {
				t.Errorf("%s, with the service's daemon as process %s, prints:\n%s", script, servicePID, out)
			}
		}
	}
}
