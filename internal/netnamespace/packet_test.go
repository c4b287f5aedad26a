package netnamespace

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

func TestPacketSockets(t *testing.T) {
	dir := t.TempDir()
	if got := PacketSockets(dir); len(got) != 0 {
		t.Errorf("without a table there are %v", got)
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("net/packet", `sk               RefCnt Type Proto  Iface R Rmem   User   Inode
00000000f42b96d0 3      3    0003   2     1 0      0      51234
0000000012345678 3      2    0800   0     1 0      1000   51235
`)
	got := PacketSockets(dir)
	if want := map[uint64]bool{51234: true, 51235: true}; !maps.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}
