package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
	"github.com/netnice/netnice/internal/testutil/trafficgen"
)

// begin starts a program in a cgroup of its own. The program waits for its commands.
func (g *generated) begin(p trafficgen.Program) (x *script, pid, dir string) {
	g.t.Helper()
	dir = filepath.Join(cgroupMount(), fmt.Sprintf("%s%d-generated", testutil.RunName(), cgroups.Add(1)))
	depth, err := strconv.Atoi(p.Limit["depth"])
	if err != nil {
		g.t.Fatal(err)
	}
	deepest := filepath.Join(dir, strings.Repeat("x/", depth))
	if err := os.MkdirAll(deepest, 0o755); err != nil {
		g.t.Fatal(err)
	}
	program, err := json.Marshal(p)
	if err != nil {
		g.t.Fatal(err)
	}
	net, err := json.Marshal(map[string]any{"4": g.B4.String(), "6": g.B6.String(), "own6": g.A6.String(), "port": generatedPeers, "serve": generatedServe, "slower": int(timeoutScale)})
	if err != nil {
		g.t.Fatal(err)
	}
	g.network(p)
	o := options{in: g.A, uid: g.uid, cgroup: deepest}
	if p.Limit["user"] == "root" {
		o.uid = 0
	}
	g.peer = g.python(options{in: g.B}, trafficgen.Peer, itoa(uint16(generatedPeers)))
	g.peer.read("ready")
	text := trafficgen.Sender
	if g.receives {
		text = trafficgen.Receiver
	}
	x = g.python(o, text, string(program), string(net))
	g.program = x
	return x, g.hear(x, "ready"), dir
}

// network has both machines treat TCP as a program wants it, and makes the path to the peers adverse that are.
func (g *generated) network(p trafficgen.Program) {
	g.t.Helper()
	if p.Any("peer", "holes", "reorders", "duplicates") {
		var err error
		if g.adverse, err = testbed.StartAdverse(g.B, p.Seed, generatedAdverse, generatedAdverseFloods); err != nil {
			g.t.Fatal(err)
		}
	}
	settings := map[string]string{"tcp_ecn": "2", "tcp_sack": "1", "tcp_timestamps": "1"} // the kernel's own
	switch p.Limit["network"] {
	case "ecn":
		settings["tcp_ecn"] = "1"
	case "no_sack":
		settings["tcp_sack"] = "0"
	case "no_timestamps":
		settings["tcp_timestamps"] = "0"
	}
	for name, value := range settings {
		if err := errors.Join(g.A.Sysctl("net/ipv4/"+name, value), g.B.Sysctl("net/ipv4/"+name, value)); err != nil {
			g.t.Fatal(err)
		}
	}
}

// endAdverse makes the path to the peers usual again.
func (g *generated) endAdverse() {
	if g.adverse == nil {
		return
	}
	if err := g.adverse.Close(); err != nil {
		g.t.Error(err)
	}
	g.adverse = nil
}

// end ends a program and all that it has left.
func (g *generated) end(p trafficgen.Program, x *script, dir string) {
	g.t.Helper()
	x.close()
	g.peer.close() // then no peer sends to it any more
	for line := range x.lines {
		g.note(line)
	}
	if !eventually(5*time.Second, func() bool { return removeBelow(dir) == nil }) {
		g.t.Errorf("%s is not empty: %v", dir, p)
	}
	g.quiet()
	// Subflows of a closed MPTCP socket stay established while they send.
	if !eventually(20*time.Second, func() bool {
		begin := g.wire()
		time.Sleep(300 * time.Millisecond)
		rate, _ := g.wire().since(begin)
		return rate < generatedLimit()/100
	}) {
		g.t.Errorf("something is sent still after the end of: %v", p)
	}
	g.endAdverse()
}

// removeBelow removes a cgroup and the cgroups below it.
func removeBelow(dir string) error {
	var all []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return err
	})
	for _, path := range slices.Backward(all) {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// subjects returns the limited subject of a program, and the subject of the limit around it.
func (g *generated) subjects(p trafficgen.Program, pid, dir string) (inner, around []string) {
	of := map[string][]string{
		"pid":    {"--pid", pid},
		"user":   {"--user", itoa(g.uid)},
		"cgroup": {"--cgroup", strings.TrimPrefix(dir, cgroupMount())},
	}
	around = of["cgroup"]
	if p.Limit["subject"] == "cgroup" {
		around = of["pid"]
	}
	return of[p.Limit["subject"]], around
}

// listedAs returns a subject as ls names it.
func listedAs(subject []string) string {
	return strings.TrimPrefix(subject[0], "--") + ":" + subject[1]
}

// pull has the peers connect to the servers of a program.
func (g *generated) pull(p trafficgen.Program) {
	g.t.Helper()
	for i, s := range p.Senders {
		if s["life"] != "serves" {
			continue
		}
		to := g.A4.String()
		if s["family"] == "6" {
			to = g.A6.String()
		}
		what := "pull"
		if g.receives {
			what = s["peer"]
		}
		g.peer.tell(fmt.Sprintf("%s %s %d", what, to, generatedServe+i))
	}
}

// hear is read for a program that also reports the choices that the kernel does not allow.
func (g *generated) hear(x *script, word string) (rest string) {
	g.t.Helper()
	for timeout := time.After(timeoutScale * 20 * time.Second); ; {
		select {
		case line, ok := <-x.lines:
			got, rest, _ := strings.Cut(line, " ")
			if got == word {
				return rest
			}
			if !ok || !g.note(line) {
				g.t.Fatalf("the program printed %q, want %q\n%s", line, word, x.wrong.String())
			}
		case <-timeout:
			g.t.Fatalf("the program does not print %q\n%s", word, x.wrong.String())
		}
	}
}

func (g *generated) note(line string) bool {
	what, rest, _ := strings.Cut(line, " ")
	switch what {
	case "refused":
		g.refused[rest] = true
	case "sent":
		g.sent[rest] = true
	default:
		return false
	}
	return true
}
