package enforce

import (
	"strconv"
	"strings"
	"time"
)

// SocketLook is how a socket stands at one time.
type SocketLook struct {
	SocketStats
	Inode    uint64 // of its file; 0 = it has none any more, or not yet
	Own      uint32 // the node that it has by itself, 0 = none; not among Nodes
	Protocol uint16
	// Loopback: it stays on the machine, where only limits with Loopback hold.
	Loopback bool
	// Static: this kernel cannot pace it by the clocks; it has a fixed part of each limit.
	Static bool
	// SentBytes and ReceivedBytes are of IP packets since it was made; TCP only.
	SentBytes, ReceivedBytes uint64
	// At is when all this was so, since some moment.
	At time.Duration
	// Waits: it has something to send that has not left. Departs is when, as planned last:
	// long ago where it does not wait for its turn.
	Waits   bool
	Departs time.Duration // from At on
	Turns   []Turn        // by the path, innermost first, the socket's own rate before that
}

// Turn is when one limit lets a socket go on.
type Turn struct {
	Node      uint32 // 0: the socket's own rate
	Direction Direction
	// Ahead is for how long what was sent is not paid for yet; Down: how long what
	// waits in the queue takes. Negative: unused credit.
	Ahead time.Duration
	Burst time.Duration // the most credit that there can be
}

// Queue is a place in which packets of limited sockets may wait.
type Queue struct {
	Direction Direction
	Netns     uint32 // inode number of the network namespace
}

// SocketInode reads the number of a socket out of the link that /proc/PID/fd has for it;
// false for other files.
func SocketInode(link string) (uint64, bool) {
	text, ok := strings.CutPrefix(link, "socket:[")
	if !ok {
		return 0, false
	}
	inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64)
	return inode, err == nil
}
