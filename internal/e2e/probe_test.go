package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
	"github.com/netnice/netnice/internal/testutil"
)

// probeFrom runs netnice probe in a namespace.
func probeFrom(t *testing.T, n *testbed.NetNS, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(netniceBinary, append([]string{"probe"}, args...)...)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := n.Start(cmd); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), problem.String(), cmd.ProcessState.ExitCode()
}

func TestProbe(t *testing.T) {
	t.Parallel()
	const rate = 1_250_000
	there := relay.Path{Delay: 5 * time.Millisecond, Rate: rate}
	p := testutil.MustDistantPair(t, relay.Config{AtoB: there, BtoA: relay.Path{Delay: 5 * time.Millisecond}})
	measure := func(packets string, oneWay bool, args ...string) {
		t.Helper()
		stdout, stderr, code := probeFrom(t, p.A, append(args, "--json")...)
		var got api.Probe
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 || stderr != "" {
			t.Fatalf("%v: exit %d, %v\n%s%s", args, code, err, stdout, stderr)
		}
		if got.Version != api.Version || got.Packets != packets || got.OneWay != oneWay {
			t.Errorf("%v: %+v", args, got)
		}
		if e := float64(got.Capacity.BytesPerSec)/rate - 1; math.Abs(e) > 0.1 || got.Capacity.AtLeast {
			t.Errorf("%v: capacity %+v", args, got.Capacity)
		}
		if got.Available == nil || math.Abs(float64(got.Available.BytesPerSec)/rate-1) > 0.25 {
			t.Errorf("%v: available %+v", args, got.Available)
		}
		if got.RoundTripNS < 10e6 || got.SentBytes == 0 || got.TookNS == 0 {
			t.Errorf("%v: %+v", args, got)
		}
	}
	measure("icmp-timestamp", true, p.B4.String())
	measure("icmp-echo", false, p.B6.String())

	reflector := exec.Command(netniceBinary, "probe", "--reflect")
	var said lockedBuffer
	reflector.Stderr = &said
	if err := p.B.Start(reflector); err != nil {
		t.Fatal(err)
	}
	if !eventually(10*time.Second, func() bool { return strings.Contains(said.String(), "answering") }) {
		t.Errorf("the reflector says %q", said.String())
	}
	picture := filepath.Join(t.TempDir(), "train.svg")
	measure("udp", true, p.B4.String(), "--svg", picture)
	measure("udp", true, p.B6.String())
	if text, err := os.ReadFile(picture); err != nil || !strings.Contains(string(text), "<circle") {
		t.Errorf("picture: %v, %.100s", err, text)
	}
	if err := reflector.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	if err := reflector.Wait(); err != nil {
		t.Errorf("the reflector ended with %v: %s", err, said.String())
	}

	text, stderr, code := probeFrom(t, p.A, p.B4.String(), "--units", "bits")
	for _, word := range []string{"capacity", "available", "round trip", "cost", "Mbit/s"} {
		if !strings.Contains(text, word) || code != 0 || stderr != "" {
			t.Errorf("exit %d, without %q:\n%s%s", code, word, text, stderr)
		}
	}
}

// For a host that never answers netnice names the kinds of packets that it tried and a remedy, in some seconds.
func TestProbeOfNobody(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/probe TestNobodyAnswers, TestReachEnds")
	t.Parallel()
	p := testutil.MustDistantPair(t, relay.Config{BtoA: relay.Path{Loss: 1}})
	for _, c := range []struct{ host, tried string }{
		{p.B4.String(), "icmp-timestamp"}, {p.B6.String(), "icmp-echo"},
	} {
		begin := time.Now()
		stdout, stderr, code := probeFrom(t, p.A, c.host)
		if d := time.Since(begin); d > 15*time.Second {
			t.Errorf("%s: it took %v", c.host, d)
		}
		if code != 1 || stdout != "" || !strings.Contains(stderr, "answers to no probe packet") || !strings.Contains(stderr, c.tried) ||
			!strings.Contains(stderr, "udp") || !strings.Contains(stderr, "\n  where ICMP is filtered, run there: netnice probe --reflect") {
			t.Errorf("%s: exit %d\n%s%s", c.host, code, stdout, stderr)
		}
	}
}
