package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
)

// serviceCapabilities returns the capabilities that netnice.service leaves the daemon, and what fails without each.
func serviceCapabilities() []struct {
	name    string
	bit     uint
	without string
} {
	return []struct {
		name    string
		bit     uint
		without string
	}{
		{"CAP_BPF", unix.CAP_BPF, "No program is loaded."},
		{"CAP_PERFMON", unix.CAP_PERFMON, "No program is attached to functions."},
		{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN, "No program is attached to the network, and no queue is made."},
		{"CAP_NET_RAW", unix.CAP_NET_RAW, ""}, // probeMeans
		{"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN, "Other network namespaces are not entered."},
		{"CAP_SYS_PTRACE", unix.CAP_SYS_PTRACE, "Other users' open files and namespaces are not seen."},
		{"CAP_DAC_OVERRIDE", unix.CAP_DAC_OVERRIDE, "Users' cgroups are not written."},
		{"CAP_DAC_READ_SEARCH", unix.CAP_DAC_READ_SEARCH, "Cgroups are not found by their ids, and users' own rules are not read."},
		{"CAP_SYS_NICE", unix.CAP_SYS_NICE, "Shares of the processors have no slots and no deadlines."},
	}
}

// Daemon checks the process of a daemon that runs, if the process has the name of netnice: a report must tell nothing of
// other processes.
func Daemon(procFolder string, pid int) []api.Check {
	proc, err := procfs.NewFS(procFolder)
	if err != nil {
		return nil
	}
	process, err := proc.Proc(pid)
	if err != nil {
		return nil
	}
	its, err := process.NewStatus()
	if err != nil || its.Name != "netnice" {
		return nil
	}
	groups, _ := os.ReadFile(filepath.Join(procFolder, "sys/net/ipv4/ping_group_range")) // "" = unknown
	return []api.Check{daemonPrivileges(pid, its.CapEff, strings.Join(strings.Fields(string(groups)), " "))}
}

// daemonPrivileges judges the effective capabilities of a daemon that runs. It is a pure function. The sysctl
// net.ipv4.ping_group_range has the groups that may send ICMP echo without CAP_NET_RAW; "" if it could not be read.
func daemonPrivileges(pid int, effective uint64, pingGroupRange string) api.Check {
	const name = "daemon"
	var lacking, means []string
	for _, c := range serviceCapabilities() {
		if effective&(1<<c.bit) != 0 {
			continue
		}
		lacking = append(lacking, c.name)
		if c.bit == unix.CAP_NET_RAW {
			means = append(means, probeMeans(pingGroupRange))
			continue
		}
		means = append(means, c.without)
	}
	if len(lacking) == 0 {
		return api.Check{Name: name, State: OK, Found: fmt.Sprintf("process %d has all capabilities that it needs", pid)}
	}
	return api.Check{
		Name: name, State: Degraded,
		Found:  fmt.Sprintf("process %d runs without %s", pid, strings.Join(lacking, ", ")),
		Means:  strings.Join(means, " "),
		Remedy: "a service: its unit has to name them (systemctl show -p CapabilityBoundingSet netnice.service); sudo systemctl revert netnice && sudo systemctl restart netnice\nelse: sudo netnice up --replace",
	}
}

// probeMeans says what a daemon without raw sockets cannot do. The answer depends on the range of groups that may have ping
// sockets, such as "0 100". The daemon's group is 0; "1 0" is no group.
func probeMeans(pingGroupRange string) string {
	var first, last uint32
	if n, _ := fmt.Sscan(pingGroupRange, &first, &last); n == 2 && first == 0 {
		return "Paths are probed by ICMP echo alone (netnice adapt, rules with adapt)."
	}
	return fmt.Sprintf("Paths to hosts that answer ICMP alone are not followed (netnice adapt, rules with adapt), since net.ipv4.ping_group_range is %q.", pingGroupRange)
}
