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

// Packet sockets send by a device itself. No hook of the kernel sees each of them, so who has
// some is said.

// probePacketSockets lists the programs that have packet sockets.
func probePacketSockets(f *Features) {
	f.PacketSockets, f.PacketSocketsErr = packetSockets("/proc")
}

// packetSockets looks at each network namespace once, and for the owners where there are some.
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
			continue // it has ended, or not even root may look
		}
		in, known := inodes[ns]
		if !known {
			in = netnamespace.PacketSockets(dir)
			inodes[ns] = in
		}
		if len(in) > 0 && hasSocket(dir+"/fd", in) {
			name, _ := os.ReadFile(dir + "/comm") // it may end meanwhile
			list = append(list, fmt.Sprintf("%s (%d)", strings.TrimSpace(string(name)), pid))
		}
	}
	return list, nil
}

// hasSocket says whether one of these, by inode, is among the open files that a folder lists.
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
