package enforce

// StatelessStats describes the stateless sockets: those without room for netnice's state, because the memory for their
// options is full. The limits on their path hold for each of them as a whole, without pacing.
type StatelessStats struct {
	Sockets []StatelessSocket
	Users   map[uint32]StatelessUser // key: the user whom the sockets count for
	// OfAll says that every user may have had stateless sockets that are not noted any more. Users does not list all
	// then.
	OfAll bool
}

// StatelessSocket is a stateless socket for which a limit holds, as the kernel side noted it at its last use. It may
// have been closed since.
type StatelessSocket struct {
	Cookie          uint64
	PID             uint32 // tgid of the process that used it last; 0 = not known
	StartBoottimeNS uint64 // start of that process
	UID             uint32
	Nodes           []uint32 // path, innermost first
	Loopback        bool     // its traffic stays on the machine
}

// StatelessUser is a user of stateless sockets.
type StatelessUser struct {
	Noted int // the number of sockets that the kernel side has noted, closed ones included
	// Forgets says that the kernel side noted more sockets, of all users, than its table is sure to keep. Those of this
	// user that it has forgotten are stopped.
	Forgets bool
}

// OnNodes counts the sockets by the nodes that hold for them.
func (s StatelessStats) OnNodes() map[uint32]int {
	count := make(map[uint32]int)
	for _, socket := range s.Sockets {
		for _, id := range socket.Nodes {
			count[id]++
		}
	}
	return count
}

// Forgets reports whether sockets of a user may have been forgotten: see StatelessUser.
func (s StatelessStats) Forgets(uid uint32) bool { return s.OfAll || s.Users[uid].Forgets }
