package enforce

import (
	"strconv"
	"strings"
	"time"
)

// SocketLook is the state of a socket at one moment.
type SocketLook struct {
	SocketStats
	Inode    uint64 // inode of its file; 0 = it has no file, or none yet
	Own      uint32 // its own node, 0 = none; Nodes does not list it
	Protocol uint16
	// Loopback says that its traffic stays on the machine, where only limits with Loopback hold.
	Loopback bool
	// Static says that this kernel cannot pace it by the clocks. It has a fixed part of each limit instead.
	Static bool
	// SentBytes and ReceivedBytes count IP packets since the socket was made; TCP only.
	SentBytes, ReceivedBytes uint64
	// At is the time of this state, relative to an arbitrary fixed moment.
	At time.Duration
	// Waits says that it has unsent data. Departs is the departure time that was planned last. It lies far in the
	// past if the clocks do not hold the socket back.
	Waits   bool
	Departs time.Duration // relative to At
	Turns   []Turn        // in the order of the path, innermost first; the socket's own rate precedes them
}

// Turn is the time at which one limit lets a socket go on.
type Turn struct {
	Node      uint32 // 0: the socket's own rate
	Direction Direction
	// Ahead is how far the sent bytes are ahead of the clock: the time until they are paid for. For Down it is the
	// time that the backlog of the queue takes. A negative value is unused credit.
	Ahead time.Duration
	Burst time.Duration // the largest credit that can accumulate
}

// Queue is a queue in which packets of limited sockets may wait.
type Queue struct {
	Direction Direction
	Netns     uint32 // inode number of the network namespace
}

// SocketInode reads the number of a socket out of its link in /proc/PID/fd. The result is false for other files.
func SocketInode(link string) (uint64, bool) {
	text, ok := strings.CutPrefix(link, "socket:[")
	if !ok {
		return 0, false
	}
	inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64)
	return inode, err == nil
}
