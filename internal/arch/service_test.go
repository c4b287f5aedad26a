package arch

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	serviceFile = "../../contrib/systemd/netnice.service"
	servicePage = "../../docs/man/netnice.7"
	pageTitle   = ".SH WHAT THE SERVICE MAY DO\n"
)

// settings returns the lines of a unit's [Service], by key. A repeated key adds to the list.
func settings(t *testing.T, file string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, service, _ := strings.Cut(string(text), "[Service]\n")
	service, _, _ = strings.Cut(service, "[Install]\n")
	found := map[string][]string{}
	for line := range strings.Lines(service) {
		key, value, is := strings.Cut(strings.TrimSpace(line), "=")
		if is && !strings.HasPrefix(key, "#") {
			found[key] = append(found[key], value)
		}
	}
	return found
}

// rows returns the first cells of the man page's tables about the service.
func rows(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(servicePage)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), pageTitle)
	if !found {
		t.Fatalf("%s has no %q", servicePage, pageTitle)
	}
	section, _, _ = strings.Cut(section, "\n.SH ")
	var cells []string
	for _, m := range regexp.MustCompile(`(?m)^([^|\n]+)\|T\{$`).FindAllStringSubmatch(section, -1) {
		cells = append(cells, strings.NewReplacer(`\-`, "-", `\(ti`, "~").Replace(m[1]))
	}
	return cells
}

// The service may do what netnice(7) says, and nothing else.
func TestServiceIsDocumented(t *testing.T) {
	unit := settings(t, serviceFile)
	// These directives do not concern the rights of the service.
	for _, key := range []string{
		"Type", "ExecStart", "ExecReload", "Nice", "Restart", "RestartSec", "WatchdogSec", "RuntimeDirectory",
		"RuntimeDirectoryMode", "RuntimeDirectoryPreserve", "StateDirectory", "StateDirectoryMode", "LimitNOFILE",
	} {
		if unit[key] == nil {
			t.Errorf("%s= is not in the unit", key)
		}
		delete(unit, key)
	}
	var have, left []string
	for key, values := range unit {
		switch key {
		case "CapabilityBoundingSet", "RestrictAddressFamilies", "ReadWritePaths":
			have = append(have, strings.Fields(strings.Join(values, " "))...)
		case "SystemCallFilter":
			for _, value := range values {
				list, without := strings.CutPrefix(value, "~")
				for _, call := range strings.Fields(list) {
					if without {
						call = "~" + call
					}
					have = append(have, call)
				}
			}
		default:
			have = append(have, key+"="+strings.Join(values, " "))
		}
	}
	var said []string
	for _, cell := range rows(t) {
		key, value, is := strings.Cut(cell, "=")
		if is && value == "" { // a directive that the unit leaves open for a reason
			left = append(left, key)
			if unit[key] != nil {
				t.Errorf("%s= is in the unit, and the page says that it is not", key)
			}
			continue
		}
		said = append(said, cell)
	}
	for _, cell := range have {
		if !slices.Contains(said, cell) {
			t.Errorf("the unit has %s, which %s does not say", cell, servicePage)
		}
	}
	for _, cell := range said {
		if !slices.Contains(have, cell) {
			t.Errorf("%s says %s, which the unit has not", servicePage, cell)
		}
	}
	text, err := os.ReadFile(serviceFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range left {
		if !regexp.MustCompile(`(?m)^# .*\b` + key + `=`).Match(text) {
			t.Errorf("the unit has no comment on why it has no %s=", key)
		}
	}
	if len(left) < 5 || len(said) < 25 {
		t.Errorf("%d and %d rows were read", len(left), len(said))
	}
}

// The filter forbids calls with which the daemon could make its read-only file systems writable again. It allows the
// calls that the daemon needs.
func TestServiceKeepsFileSystems(t *testing.T) {
	unit := settings(t, serviceFile)
	filter := unit["SystemCallFilter"]
	if len(filter) == 0 || filter[0] != "@system-service" {
		t.Fatalf("SystemCallFilter= is no list of what is allowed: %q", filter)
	}
	calls := strings.Fields(strings.Join(filter, " "))
	for _, call := range []string{
		"@mount", "mount", "umount", "umount2", "pivot_root", "chroot", "fsopen", "fsmount", "move_mount", "open_tree", "mount_setattr",
		"@privileged", "@module", "@raw-io", "@reboot", "@debug", "ptrace",
	} {
		if slices.Contains(calls, call) {
			t.Errorf("the service may call %s", call)
		}
	}
	if namespaces := unit["RestrictNamespaces"]; !slices.Equal(namespaces, []string{"net"}) {
		t.Errorf("the service may enter namespaces of the kinds %q", namespaces)
	}
	for _, call := range []string{"bpf", "open_by_handle_at", "pidfd_getfd"} {
		if !slices.Contains(calls, call) {
			t.Errorf("the service may not call %s", call)
		}
	}
}

// The exposure of the service by systemd's own measure is at most 5.5 of 10.
func TestServiceExposure(t *testing.T) {
	const reason = "no systemd-analyze of release 250 or later (Debian 12: apt-get install systemd)"
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip(reason)
	}
	exposed := func(threshold, file string) (string, bool) {
		out, err := exec.Command(analyze, "security", "--offline=true", "--no-pager", "--threshold="+threshold, file).CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if strings.Contains(string(out), "unrecognized option") {
			t.Skip(reason)
		}
		if !strings.Contains(string(out), "Overall exposure level") {
			t.Fatalf("systemd-analyze says %q", out)
		}
		return string(out), err != nil
	}
	if out, above := exposed("55", serviceFile); above {
		t.Errorf("the service is exposed by more than 5.5:\n%s", out)
	}
	if out, above := exposed("10", serviceFile); !above {
		t.Errorf("the measure has no effect: %s", out)
	}
}
