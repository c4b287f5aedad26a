package netnamespace

import "os"

// PacketSockets has the inodes of the packet sockets in the network namespace of a process,
// whose folder below /proc is given. Where the kernel has no such sockets there are none.
func PacketSockets(process string) map[uint64]bool {
	text, err := os.ReadFile(process + "/net/packet")
	if err != nil {
		return nil
	}
	return inodes(string(text), datagramTables["packet"])
}
