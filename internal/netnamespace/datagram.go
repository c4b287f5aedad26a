package netnamespace

import (
	"maps"
	"os"
	"strconv"
	"strings"
)

// datagramTables are the kernel's tables, below a process's net folder, of sockets that send what is no TCP, and the
// column of the inode.
var datagramTables = map[string]int{
	"udp": 9, "udp6": 9, "udplite": 9, "udplite6": 9, "raw": 9, "raw6": 9, "icmp": 9, "icmp6": 9, "packet": 8,
}

// DatagramSockets has the inodes of the sockets that send what is no TCP in the network namespace of a process, whose
// folder below /proc is given: UDP sockets that are bound, connected or have sent, raw, ping and packet sockets.
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
			if n, err := strconv.ParseUint(fields[column], 10, 64); err == nil { // not the title
				out[n] = true
			}
		}
	}
	return out
}
