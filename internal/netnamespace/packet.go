package netnamespace

import "os"

// PacketSockets returns the inodes of the packet sockets in a process's network namespace. process is the path of the
// process's folder in /proc. The result is empty if the kernel has no such sockets.
func PacketSockets(process string) map[uint64]bool {
	text, err := os.ReadFile(process + "/net/packet")
	if err != nil {
		return nil
	}
	return inodes(string(text), datagramTables["packet"])
}
