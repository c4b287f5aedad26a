package netnamespace

import (
	"maps"
	"os"
	"strconv"
	"strings"
)

// datagramTables are the kernel's tables of sockets that send non-TCP egress, in the net folder of a process. Each has
// the number of the column that holds the inode.
var datagramTables = map[string]int{
	"udp": 9, "udp6": 9, "udplite": 9, "udplite6": 9, "raw": 9, "raw6": 9, "icmp": 9, "icmp6": 9, "packet": 8,
}

// DatagramSockets returns the inodes of the sockets that send non-TCP egress in a process's network namespace. process
// is the path of the process's folder in /proc. The result has UDP sockets that are bound, connected or have sent, and
// raw, ping and packet sockets.
func DatagramSockets(process string) map[uint64]bool {
	out := make(map[uint64]bool)
	for table, column := range datagramTables {
		if text, err := os.ReadFile(process + "/net/" + table); err == nil { // else the kernel has no such sockets
			maps.Copy(out, inodes(string(text), column))
		}
	}
	return out
}

// inodes reads a table's column of inodes.
func inodes(table string, column int) map[uint64]bool {
	out := make(map[uint64]bool)
	for line := range strings.Lines(table) {
		if fields := strings.Fields(line); len(fields) > column {
			if n, err := strconv.ParseUint(fields[column], 10, 64); err == nil { // else it is the title line
				out[n] = true
			}
		}
	}
	return out
}
