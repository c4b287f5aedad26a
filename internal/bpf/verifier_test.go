package bpf

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/netnice/netnice/internal/testutil"
)

// instructionsBudget is half of the instructions that the kernel's verifier processes before it gives up (1,000,000,
// BPF_COMPLEXITY_LIMIT_INSNS).
const instructionsBudget = 500_000

// The verifier processes at most half of its limit for each program, so that another kernel,
// which may process more, loads them too.
func TestVerifierBudget(t *testing.T) {
	testutil.RequireRoot(t)
	stats := regexp.MustCompile(`processed (\d+) insns .*total_states (\d+)`)
	var lines []string
	onVerified = func(program, log string) {
		m := stats.FindStringSubmatch(log)
		if m == nil {
			t.Errorf("%s: the verifier says %q", program, log)
			return
		}
		instructions, _ := strconv.Atoi(m[1])
		lines = append(lines, fmt.Sprintf("verifier: %7d instructions, %6s states, %s", instructions, m[2], program))
		if instructions > instructionsBudget {
			t.Errorf("%s: %d instructions, of %d that it may have", program, instructions, instructionsBudget)
		}
	}
	defer func() { onVerified = nil }()
	pins := filepath.Join("/sys/fs/bpf", testutil.RunName()+"verifier")
	defer func() {
		if err := RemovePins(pins); err != nil {
			t.Error(err)
		}
	}()
	o, err := Load(Options{PinDir: pins, CgroupRoot: "/sys/fs/cgroup"})
	fatal := func(err error) {
		var said *ebpf.VerifierError
		if errors.As(err, &said) {
			t.Logf("%+v", said)
		}
		t.Fatal(err)
	}
	if err != nil {
		fatal(err)
	}
	defer o.Close()
	in, err := o.LoadShaping()
	if err != nil {
		fatal(err)
	}
	defer in.Close()
	out, err := o.LoadSending()
	if err != nil {
		fatal(err)
	}
	defer out.Close()
	slices.Sort(lines)
	slices.Reverse(lines)
	t.Logf("\n%s", strings.Join(lines, "\n"))
	if len(lines) < 30 {
		t.Errorf("%d programs were looked at", len(lines))
	}
}
