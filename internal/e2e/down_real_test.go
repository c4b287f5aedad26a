package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// Real programs fetch files under a limit: each byte is the one that was sent, and the rate is the limit's.

const (
	fetched     = 5 << 20 // bytes
	fetchLimit  = 4e6     // bytes per second
	fetchPieces = 50
)

// site is a folder with random files that a server in B offers by HTTP.
type site struct {
	*inbound
	dir string
}

// newSite makes a site with one file "data", and the same data in pieces "0", "1", ...
func newSite(t *testing.T) *site {
	t.Helper()
	w := &site{inbound: newInbound(newStage(t), testutil.MustPair(t)), dir: t.TempDir()}
	data := randomBytes(fetched)
	w.put("data", data)
	for i := range fetchPieces {
		w.put(strconv.Itoa(i), data[i*fetched/fetchPieces:(i+1)*fetched/fetchPieces])
	}
	w.serve()
	// The first limit loads programs into the kernel, which takes a second.
	w.must("set", "--pid", itoa(w.rx.PID()), "--down", "1GB/s")
	return w
}

func randomBytes(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // never fails
	return data
}

func (w *site) put(name string, data []byte) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), data, 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *site) serve() {
	w.t.Helper()
	w.python(options{in: w.B}, fileServer, w.dir).read("ready")
}

func (w *site) url(name string) string { return fmt.Sprintf("http://%s:8080/%s", w.B4, name) }

// fetch runs a command in A under the limit. The command must take as long as n bytes of payload need at that rate,
// with overhead bytes on the wire for each byte.
func (w *site) fetch(n, overhead float64, args ...string) {
	w.t.Helper()
	cmd := w.command(append([]string{"run", "--down", fmt.Sprintf("%.0fB/s", fetchLimit), "--"}, args...)...)
	cmd.Dir = w.dir
	begin := testbed.Now()
	r := w.run(cmd, w.A)
	if r.code != 0 {
		w.t.Fatal(r)
	}
	took, want := r.at.Sub(begin), time.Duration(n*overhead/fetchLimit*1e9)
	w.t.Logf("%v, at the limit %v", took.Round(time.Millisecond), want.Round(time.Millisecond))
	// A program also starts, ends, and reads data that have arrived already. A limit waits while other tests'
	// namespaces come and go.
	if took < want*96/100 || took > want*120/100+4*time.Second && !excused(w.t, begin, r.at) {
		w.t.Errorf("%q took %v, at the limit %v", args, took, want)
	}
}

// same checks that a file equals "data".
func (w *site) same(path string) {
	w.t.Helper()
	sum := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			w.t.Fatal(err)
		}
		s := sha256.Sum256(data)
		return hex.EncodeToString(s[:8])
	}
	if got, want := sum(path), sum(filepath.Join(w.dir, "data")); got != want {
		w.t.Errorf("what came has the checksum %s, what was sent %s", got, want)
	}
}

// need returns the path of a program, and skips the test without it.
func need(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	return path
}

func TestDownRealPrograms(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"curl": fetchByCurl, "wget": fetchByWget, "apt-get": fetchByApt, "rsync over ssh": fetchByRsync, "50 objects": fetchObjects,
		"iperf3 -R": fetchByIperf, "QUIC": fetchByQUIC, "DNS and ping beside": namesBeside,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

func fetchByCurl(t *testing.T) {
	curl := need(t, "curl")
	w := newSite(t)
	out := filepath.Join(w.dir, "out")
	w.fetch(fetched, perByte, curl, "-sS", "--fail", "-o", out, w.url("data"))
	w.same(out)
}

func fetchByWget(t *testing.T) {
	wget := need(t, "wget")
	w := newSite(t)
	out := filepath.Join(w.dir, "out")
	w.fetch(fetched, perByte, wget, "-q", "-O", out, w.url("data"))
	w.same(out)
}

// The program fetches like a browser: one name lookup, and six connections that it reuses.
func fetchObjects(t *testing.T) {
	curl := need(t, "curl")
	w := newSite(t)
	w.fetch(fetched, perByte, curl, "-sS", "--fail", "--parallel", "--parallel-max", "6",
		"-o", "got-#1", w.url(fmt.Sprintf("[0-%d]", fetchPieces-1)))
	var all []byte
	for i := range fetchPieces {
		piece, err := os.ReadFile(filepath.Join(w.dir, fmt.Sprintf("got-%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, piece...)
	}
	w.put("out", all)
	w.same(filepath.Join(w.dir, "out"))
}

// apt-get starts programs of its own that fetch.
func fetchByApt(t *testing.T) {
	apt, deb := need(t, "apt-get"), need(t, "dpkg-deb")
	w := newSite(t)
	tree := filepath.Join(w.dir, "tree")
	for _, dir := range []string{"DEBIAN", "usr/share/netnice-e2e"} {
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	control := "Package: netnice-e2e\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\nDescription: random data\n"
	w.put("tree/DEBIAN/control", []byte(control))
	w.put("tree/usr/share/netnice-e2e/data", randomBytes(fetched))
	if out, err := exec.Command(deb, "--root-owner-group", "-Znone", "--build", tree, filepath.Join(w.dir, "p.deb")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(filepath.Join(w.dir, "p.deb"))
	if err != nil {
		t.Fatal(err)
	}
	w.put("data", data)
	sum := sha256.Sum256(data)
	w.put("Packages", fmt.Appendf(nil, "%sFilename: p.deb\nSize: %d\nSHA256: %x\n", control, len(data), sum))
	w.put("sources.list", fmt.Appendf(nil, "deb [trusted=yes] %s ./\n", strings.TrimSuffix(w.url(""), "/")))
	args := []string{apt, "-qq", "-o", "APT::Sandbox::User=root", "-o", "Dir::State::status=/dev/null", "-o", "Dir::Etc::sourceparts=/dev/null"}
	for option, path := range map[string]string{"Dir::State": "state", "Dir::Cache": "cache", "Dir::Log": "log", "Dir::Etc::sourcelist": "sources.list"} {
		path = filepath.Join(w.dir, path)
		if filepath.Ext(path) == "" {
			if err := os.MkdirAll(filepath.Join(path, "lists/partial"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		args = append(args, "-o", option+"="+path)
	}
	update := exec.Command(args[0], append(args[1:], "update")...)
	if r := w.run(update, w.A); r.code != 0 {
		t.Fatal(r)
	}
	w.fetch(float64(len(data)), perByte, append(args, "download", "netnice-e2e")...)
	got, err := filepath.Glob(filepath.Join(w.dir, "netnice-e2e_*.deb"))
	if err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	w.same(got[0])
}

func fetchByRsync(t *testing.T) {
	rsync, sshd, keygen := need(t, "rsync"), need(t, "/usr/sbin/sshd"), need(t, "ssh-keygen")
	w := newSite(t)
	key := filepath.Join(w.dir, "key")
	if out, err := exec.Command(keygen, "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.put("sshd_config", fmt.Appendf(nil, "Port 2222\nHostKey %[1]s\nAuthorizedKeysFile %[1]s.pub\nPermitRootLogin yes\nStrictModes no\nUsePAM no\nPidFile none\n", key))
	w.do(func() error { return os.MkdirAll("/run/sshd", 0o755) })
	w.script(options{in: w.B}, sshd, "-D", "-e", "-f", filepath.Join(w.dir, "sshd_config"))
	shell := fmt.Sprintf("ssh -q -p 2222 -i %s -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ConnectTimeout=5 -o ConnectionAttempts=10", key)
	out := filepath.Join(w.dir, "out")
	// ssh pads and signs each of its packets of 32 KB, which adds 0.1%.
	w.fetch(fetched, perByte*1.001, rsync, "-W", "-e", shell, fmt.Sprintf("root@%s:%s/data", w.B4, w.dir), out)
	w.same(out)
}

func fetchByIperf(t *testing.T) {
	iperf := need(t, "iperf3")
	w := newSite(t)
	w.script(options{in: w.B}, iperf, "-s", "-p", "5300")
	time.Sleep(500 * time.Millisecond)
	w.fetch(fetched, perByte, iperf, "-c", w.B4.String(), "-p", "5300", "-R", "-n", strconv.Itoa(fetched))
}

// A transfer by QUIC is UDP for the kernel.
func fetchByQUIC(t *testing.T) {
	w := newSite(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	agent := func(role string, args ...string) []string {
		return append([]string{self}, agentArgs(role, args...)[1:]...)
	}
	server := w.script(options{in: w.B}, agent(agentQUICServer, fmt.Sprintf("%s:4433", w.B4), filepath.Join(w.dir, "data"))...)
	server.read("ready")
	out := filepath.Join(w.dir, "out")
	// Datagrams have 1,252 to 1,452 bytes, of which 28 are headers and some 25 are QUIC's own.
	w.fetch(fetched, 1.04, agent(agentQUICClient, fmt.Sprintf("%s:4433", w.B4), out)...)
	w.same(out)
}

// Small requests get an answer soon while the same program downloads.
func namesBeside(t *testing.T) {
	w := newSite(t)
	w.python(options{in: w.B}, `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 53))
say("ready")
while True:
    data, who = s.recvfrom(512)
    s.sendto(data[:2] + b"\x81\x80" + data[4:], who)
`).read("ready")
	bulk := w.python(options{in: w.A, under: []string{netniceBinary, "run", "--down", "1MB/s", "--"}}, `
import urllib.request
host, url = sys.argv[1:3]
def fetch():
    while True:
        urllib.request.urlopen(url).read()
threading.Thread(target=fetch, daemon=True).start()
time.sleep(1.5)
worst = []
for i in range(20):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(2)
    begin = time.monotonic()
    s.sendto(b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03org\x00\x00\x01\x00\x01", (host, 53))
    s.recv(512)
    worst.append(time.monotonic() - begin)
    time.sleep(0.05)
worst.sort()
say("took", *(int(t * 1e6) for t in worst))
ping = subprocess.run(["ping", "-c", "10", "-i", "0.1", "-q", host], stdout=subprocess.PIPE, text=True).stdout
say("ping", ping.split("packets transmitted, ")[1].split()[0])
wait()
`, w.B4.String(), w.url("data"))
	begin := testbed.Now()
	var micros []int
	for _, f := range strings.Fields(bulk.read("took")) {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		micros = append(micros, n)
	}
	median := time.Duration(micros[len(micros)/2]) * time.Microsecond
	t.Logf("names were answered after %v, the last of 20 after %d us", median, micros[len(micros)-1])
	// The bound covers the queue of one download, 10 ms, and its next chunk.
	if median > 40*time.Millisecond && !excused(t, begin, testbed.Now()) {
		t.Errorf("names were answered after %v", median)
	}
	if got := bulk.read("ping"); got != "10" {
		t.Errorf("%s of 10 echoes were answered", got)
	}
}
