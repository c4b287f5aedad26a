package bed

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/cilium/ebpf/link"
)

// Machine describes the machine of the figures.
type Machine struct {
	Kernel string `json:"kernel"`
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	// Netnice is the release under test.
	Netnice string `json:"netnice"`
	// Load is the load average of the minute before: it shows other work.
	Load string `json:"load"`
	// OtherLinks counts BPF programs on sockets that other software has attached, such as another netnice.
	// Measurements of overhead need a machine without them.
	OtherLinks int `json:"other_bpf_links"`
}

func (m Machine) String() string {
	return fmt.Sprintf("Linux %s, %d x %s, load %s before, %d BPF links of others", m.Kernel, m.CPUs, m.CPU, m.Load, m.OtherLinks)
}

func describe() (Machine, error) {
	m := Machine{CPUs: runtime.NumCPU(), CPU: "unknown CPU"}
	var err error
	if m.Kernel, err = firstWord("/proc/sys/kernel/osrelease"); err != nil {
		return m, err
	}
	if m.Load, err = firstWord("/proc/loadavg"); err != nil {
		return m, err
	}
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m, fmt.Errorf("read CPU model: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	m.OtherLinks, err = links()
	return m, err
}

func firstWord(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("describe the machine: %w", err)
	}
	word, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	return word, nil
}

// links counts the BPF links of the machine.
func links() (int, error) {
	var it link.Iterator
	defer it.Close()
	n := 0
	for it.Next() {
		n++
	}
	if err := it.Err(); err != nil {
		return n, fmt.Errorf("list BPF links: %w", err)
	}
	return n, nil
}
