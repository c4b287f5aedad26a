package scenario

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/testutil/vm"
)

// build builds netnice.
func build(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "netnice")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/netnice/netnice/cmd/netnice")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return program
}

// kernels returns Debian's kernels, and the image that NETNICE_VM_ALSO names (vm.Config.Kernel).
func kernels() []string {
	k := []string{"6.1", "6.12"}
	if also := os.Getenv("NETNICE_VM_ALSO"); also != "" {
		k = append(k, also)
	}
	return k
}

// TestNetnice runs TestGuest on each kernel.
func TestNetnice(t *testing.T) { inGuests(t, "^TestGuest$") }

// inGuests runs a test of this package on each kernel, where netnice is installed.
func inGuests(t *testing.T, test string) {
	t.Helper()
	vm.Require(t)
	program := build(t)
	for _, series := range kernels() {
		t.Run(filepath.Base(series), func(t *testing.T) {
			vm.RunTests(t, vm.Config{
				Kernel: series,
				Files:  map[string]string{"/bin/netnice": program},
			}, ".", test)
		})
	}
}

// TestShares has each kernel divide the egress by weight, by guarantee, and by reservation.
func TestShares(t *testing.T) { inGuests(t, "^TestGuestShares$") }

// TestFeatures asks each kernel for its features, and checks the answer.
func TestFeatures(t *testing.T) {
	vm.Require(t)
	for _, series := range kernels() {
		t.Run(filepath.Base(series), func(t *testing.T) {
			vm.RunTests(t, vm.Config{Kernel: series}, "github.com/netnice/netnice/internal/kernelfeatures", "")
		})
	}
}

// TestShaping has each kernel limit ingress and UDP egress, and remove all of that again: programs and devices that
// older kernels implement differently.
func TestShaping(t *testing.T) {
	vm.Require(t)
	for _, series := range kernels() {
		t.Run(filepath.Base(series), func(t *testing.T) {
			vm.RunTests(t, vm.Config{Kernel: series}, "github.com/netnice/netnice/internal/enforce/shaping",
				"^(TestReceived|TestDatagramsWait|TestSentBuffer|TestSentByAGate|TestSentToAQueueThatIsHeld)$/^TCP$")
		})
	}
}

// TestVerifierBudget has each kernel's verifier print the number of instructions that it checked in each program.
func TestVerifierBudget(t *testing.T) {
	vm.Require(t)
	for _, series := range kernels() {
		t.Run(filepath.Base(series), func(t *testing.T) {
			vm.RunTests(t, vm.Config{Kernel: series}, "github.com/netnice/netnice/internal/bpf", "^TestVerifierBudget$")
		})
	}
}

// TestBadPlaces runs netnice's own check of the machine where a requirement is missing that only another boot can
// take away.
func TestBadPlaces(t *testing.T) {
	vm.Require(t)
	for name, c := range map[string]vm.Config{
		"cgroup v1 only": {Cgroup: "v1", NoBPFFS: true},
		"lockdown":       {Append: "lockdown=confidentiality"},
	} {
		t.Run(name, func(t *testing.T) {
			res := vm.RunTests(t, c, "github.com/netnice/netnice/internal/doctor", "^TestThisMachine$")
			require.Contains(t, string(res.Stdout), map[string]string{
				"cgroup v1 only": "systemd.unified_cgroup_hierarchy=1",
				"lockdown":       "lockdown: confidentiality",
			}[name])
		})
	}
}

// TestPaths has Debian's kernel limit ingress by tunnels, VLANs, bridges and NAT, which this machine's kernel may
// lack.
func TestPaths(t *testing.T) {
	vm.Require(t)
	for _, series := range slices.DeleteFunc(kernels(), func(k string) bool { return k == "6.12" }) {
		t.Run(filepath.Base(series), func(t *testing.T) {
			vm.RunTests(t, vm.Config{
				Kernel:   series,
				Files:    map[string]string{"/bin/netnice": build(t)},
				Programs: []string{"nft", "wg"},
				Modules:  []string{"crc32c_generic", "wireguard", "8021q", "bridge", "nf_tables", "nft_chain_nat", "nft_masq", "nft_nat", "nft_redir"},
			}, ".", "^TestGuestPaths$")
		})
	}
}

// TestOptions has Debian's kernels take other software's large socket options, tables of iptables-legacy among them.
// Before 6.5 the kernel fails such options if a hook such as netnice's does not leave them alone.
func TestOptions(t *testing.T) {
	vm.Require(t)
	for _, series := range kernels() {
		t.Run(filepath.Base(series), func(t *testing.T) {
			vm.RunTests(t, vm.Config{
				Kernel:   series,
				Files:    map[string]string{"/bin/netnice": build(t), "/usr/lib/x86_64-linux-gnu/xtables": "/usr/lib/x86_64-linux-gnu/xtables"},
				Programs: []string{"iptables-legacy", "iptables-legacy-restore", "iptables-legacy-save"},
				Modules:  []string{"iptable_filter", "xt_tcpudp"},
			}, ".", "^TestGuestOptions$")
		})
	}
}
