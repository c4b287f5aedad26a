package kernelfeatures

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/netnamespace"
)

// Packet sockets send by a device directly. No hook of the kernel sees all of them. Therefore the probe lists the
// programs that have some.

// probePacketSockets lists the programs that have packet sockets.
func probePacketSockets(f *Features) {
	f.PacketSockets, f.PacketSocketsErr = packetSockets("/proc")
}

// packetSockets reads the packet sockets of each network namespace once, and looks for their owners if there are some.
func packetSockets(proc string) (list []string, err error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("%w: list processes: %w", ErrUnknown, err)
	}
	inodes := map[string]map[uint64]bool{} // by namespace
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		dir := proc + "/" + e.Name()
		ns, err := os.Readlink(dir + "/ns/net")
		if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
			return nil, fmt.Errorf("%w: see the network namespaces of processes: %w", ErrUnknown, err)
		}
		if err != nil {
			continue // the process has ended, or not even root may look
		}
		in, known := inodes[ns]
		if !known {
			in = netnamespace.PacketSockets(dir)
			inodes[ns] = in
		}
		if len(in) > 0 && hasSocket(dir+"/fd", in) {
			name, _ := os.ReadFile(dir + "/comm") // the process may end meanwhile
			list = append(list, fmt.Sprintf("%s (%d)", strings.TrimSpace(string(name)), pid))
		}
	}
	return list, nil
}

// hasSocket reports whether the open files that the folder lists include a socket with one of these inodes.
func hasSocket(dir string, among map[uint64]bool) bool {
	entries, _ := os.ReadDir(dir) // the process may end meanwhile
	for _, e := range entries {
		link, err := os.Readlink(dir + "/" + e.Name())
		if inode, ok := enforce.SocketInode(link); err == nil && ok && among[inode] {
			return true
		}
	}
	return false
}
