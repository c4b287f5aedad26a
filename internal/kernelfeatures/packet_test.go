package kernelfeatures

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A process is named if it has a packet socket of its namespace open.
func TestPacketSocketsOfPrograms(t *testing.T) {
	proc := t.TempDir()
	const table = "sk RefCnt Type Proto Iface R Rmem User Inode\n0000 3 3 0003 2 1 0 0 77\n"
	for _, p := range []struct{ pid, namespace, table, socket string }{
		{"12", "net:[1]", table, "socket:[77]"},
		{"13", "net:[1]", table, "socket:[78]"},
		{"14", "net:[2]", "", "socket:[77]"},
	} {
		dir := filepath.Join(proc, p.pid)
		for _, sub := range []string{"ns", "net", "fd"} {
			if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		err := errors.Join(
			os.Symlink(p.namespace, filepath.Join(dir, "ns/net")), os.Symlink(p.socket, filepath.Join(dir, "fd/5")),
			os.WriteFile(filepath.Join(dir, "net/packet"), []byte(p.table), 0o644),
			os.WriteFile(filepath.Join(dir, "comm"), []byte("dhclient\n"), 0o644))
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := packetSockets(proc)
	if err != nil || !slices.Equal(got, []string{"dhclient (12)"}) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestHasSocket(t *testing.T) {
	dir, among := t.TempDir(), map[uint64]bool{51234: true, 51235: true}
	if err := os.WriteFile(filepath.Join(dir, "0"), []byte("no link"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("socket:[51233]", filepath.Join(dir, "3")); err != nil {
		t.Fatal(err)
	}
	if hasSocket(dir, among) {
		t.Error("another socket is taken for one of them")
	}
	if err := os.Symlink("socket:[51235]", filepath.Join(dir, "4")); err != nil {
		t.Fatal(err)
	}
	if !hasSocket(dir, among) {
		t.Error("one that is open is not found")
	}
}
