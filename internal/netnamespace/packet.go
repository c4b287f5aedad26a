package netnamespace

import (
	"os"
	"strconv"
	"strings"
)

// PacketSockets has the inodes of the packet sockets in the network namespace of a process,
// whose folder below /proc is given. Where the kernel has no such sockets there are none.
func PacketSockets(process string) map[uint64]bool {
	text, err := os.ReadFile(process + "/net/packet")
	if err != nil {
		return nil
	}
	return packetInodes(string(text))
}

// packetInodes reads the kernel's table.
func packetInodes(table string) map[uint64]bool {
	const inode = 8
	out := make(map[uint64]bool)
	for line := range strings.Lines(table) {
		if fields := strings.Fields(line); len(fields) > inode {
			if n, err := strconv.ParseUint(fields[inode], 10, 64); err == nil { // not the title
				out[n] = true
			}
		}
	}
	return out
}
