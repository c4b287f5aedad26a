package e2e

import (
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// rules loads nftables rules in a namespace.
func rules(t *testing.T, n *testbed.NetNS, text string) {
	t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := n.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		t.Fatalf("set rules (apt-get install nftables): %v\n%s", err, &out)
	}
}

// NAT changes addresses and ports on the machine itself: on arrival a packet does not name its socket.
func TestDownTranslated(t *testing.T) {
	t.Parallel()
	const limit = 5e6
	const fetch = `
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
say("ready")
wait()
s.sendall(b"GET /data HTTP/1.0\r\n\r\n")
got, begin = 0, time.time() + 1  # until it is found by its port
while time.time() < begin + 3:
    n = len(s.recv(1 << 16))
    if time.time() > begin:
        got += n
say("got", (got / (time.time() - begin)))
wait()
`
	for name, c := range testutil.SubsetOf(map[string]struct {
		rules, address, port string
		away                 bool // another namespace than that of the daemon
	}{
		"port redirected": {rules: `table ip nat {
			chain in { type nat hook prerouting priority dstnat; tcp dport 9001 redirect to :5001; }
		}`},
		"port redirected, elsewhere, IPv6": {away: true, rules: `table ip6 nat {
			chain in { type nat hook prerouting priority dstnat; tcp dport 9001 redirect to :5001; }
		}`},
		"destination changed": {address: "10.55.0.1", port: "80", rules: `table ip nat {
			chain here { type nat hook output priority -100; ip daddr 10.55.0.1 tcp dport 80 dnat to 10.98.0.2:8080; }
		}`},
		"source changed": {away: true, address: "10.98.0.2", port: "8080", rules: `table ip nat {
			chain out { type nat hook postrouting priority srcnat; tcp dport 8080 snat to 10.98.0.1:20000-20999; }
		}`},
	}, "port redirected, elsewhere, IPv6", "destination changed") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := testutil.MustPair(t)
			home := p.A
			if c.away {
				home = newNetNS(t)
			}
			f := newInboundFrom(newStage(t), p, home)
			rules(t, f.A, c.rules)
			if c.port == "" {
				f.must("set", "--pid", itoa(f.rx.PID()), "--down", "5MB/s")
				x := f.sendTo(9001, c.away, testbed.SenderConfig{Connections: 2})
				defer func() { _, _ = x.Stop() }()
				time.Sleep(time.Second)
				per := perByte
				if c.away {
					per = perByte6
				}
				f.once("pid:"+itoa(f.rx.PID()), limit, f.rx, per, 5001)
				f.faultless()
				return
			}
			if err := f.A.Netlink().RouteAdd(&netlink.Route{Gw: net.IP(f.B4.AsSlice())}); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := os.WriteFile(dir+"/data", make([]byte, 1<<30), 0o644); err != nil {
				t.Fatal(err)
			}
			f.python(options{in: f.B}, fileServer, dir).read("ready")
			rx := f.python(options{in: f.A}, fetch, c.address, c.port)
			rx.read("ready")
			f.must("set", "--pid", rx.pid(), "--down", "5MB/s")
			begin := testbed.Now()
			rx.tell("go")
			time.Sleep(time.Second)
			f.near("counted", begin, f.letThrough("pid:"+rx.pid()), limit, 0.03)
			got, err := strconv.ParseFloat(rx.read("got"), 64)
			if err != nil {
				t.Fatal(err)
			}
			f.near("received", begin, got*perByte, limit, 0.05)
			f.faultless()
		})
	}
}

// NAT leads datagrams to one program. They do not belong to another program that is bound to their original port:
// Docker has such a proxy program for each port that it publishes.
func TestDownTranslatedDatagrams(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDownTranslated and TestDownUDP")
	t.Parallel()
	const limit = 2e6
	f := newInbound(newStage(t), testutil.MustPair(t))
	rules(t, f.A, `table ip nat {
		chain in { type nat hook prerouting priority dstnat; udp dport 9053 redirect to :9054; }
	}`)
	take := func(port string) *script {
		x := f.python(options{in: f.A}, `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", int(sys.argv[1])))
say("ready")
while True:
    s.recv(1 << 16)
`, port)
		x.read("ready")
		f.must("set", "--pid", x.pid(), "--down", "2MB/s")
		return x
	}
	named, meant := take("9053"), take("9054")
	f.python(options{in: f.B}, `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
begin = time.time()
for n in range(10**9):
    s.sendto(bytes(1000), (sys.argv[1], 9053))
    time.sleep(max(0, n * 1000 / 4e6 - (time.time() - begin)))
`, f.A4.String())
	time.Sleep(time.Second)
	begin := testbed.Now()
	f.near("whom it is for", begin, f.letThrough("pid:"+meant.pid()), limit, 0.03)
	if got := f.letThrough("pid:" + named.pid()); got > 0 {
		t.Errorf("%.0f bytes/s were counted for who listens on the port that is named", got)
	}
	f.faultless()
}

// NAT leads a port to a limited program. The amount of data that passes before netnice has traced one of its packets
// is bounded.
func TestDownTranslatedBurst(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDownTranslated")
	t.Parallel()
	const limit, burst, unseen = 100e3, 3e6, 65536
	f := newInbound(newStage(t), testutil.MustPair(t))
	rules(t, f.A, `table ip nat {
		chain in { type nat hook prerouting priority dstnat; udp dport 9053 redirect to :9054; }
	}`)
	rx := f.python(options{in: f.A}, `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
s.bind(("", 9054))
say("ready")
s.recv(1 << 16)
s.settimeout(1)
begin, got = time.time(), 0
while time.time() < begin + 1:
    try:
        got += len(s.recv(1 << 16))
    except TimeoutError:
        pass
say("got", got)
wait()
`)
	rx.read("ready")
	f.must("set", "--pid", rx.pid(), "--down", "100KB/s")
	time.Sleep(2500 * time.Millisecond) // netnice knows the ports by then, and that one is not among them
	begin := testbed.Now()
	f.python(options{in: f.B}, `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(int(float(sys.argv[2])) // 1400):
    s.sendto(bytes(1400), (sys.argv[1], 9053))
wait()
`, f.A4.String(), strconv.FormatFloat(burst, 'f', 0, 64))
	got, err := strconv.ParseFloat(rx.read("got"), 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.0f bytes in the first second", got)
	most := 1.3*limit + float64(runtime.NumCPU())*(unseen+1500)
	if got > most || got < limit/2 && !excused(t, begin, testbed.Now()) {
		t.Errorf("%.0f bytes came in the first second of a limit of %.0f", got, limit)
	}
	f.faultless()
}
