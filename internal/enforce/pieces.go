package enforce

import "time"

// Kernel is the machine's enforcement state, as Open returns it. Its users take one of the pieces, or declare
// what they need of one. All methods are idempotent and safe for concurrent use. After an error the previous limits stay
// in force.
type Kernel interface {
	Nodes
	DestinationSetter
	Members
	Requests
	Events
	Figures
	Paths
	Programs
	// Close releases the kernel state without lifting any limit.
	Close() error
	// Down detaches everything, removes every pin and closes. After an error nothing is closed, and the caller may
	// try again.
	Down() error
}

// Nodes sets the nodes, and reads back those in force.
type Nodes interface {
	// SetNode creates the node or changes its limits in place. Running members and their open connections obey when
	// it returns.
	SetNode(NodeSpec) error
	// RemoveNode lifts the node. Its members fall to its parent. Packets that waited in its queues may still be on
	// their way; their devices and classes stay until Drain.
	RemoveNode(id uint32) error
	// Drain waits until no packet, queue or node of lifted limits is left.
	Drain()
	// Nodes reads back the nodes in force, which a restarted daemon adopts.
	Nodes() ([]NodeSpec, error)
	// Inherits reports whether the node would have members although its process has ended. This happens while the
	// state of another release is taken over, and its node of that number has members.
	Inherits(NodeSpec) bool
	// Settle says that the daemon has set all nodes of its predecessor again. The limits that another release left
	// in force go then.
	Settle() error
}

// DestinationSetter says which nodes hold for which part of the traffic.
type DestinationSetter interface {
	// SetDestinations says which nodes hold for which part of the traffic. It replaces the previous assignment and
	// makes open connections obey.
	SetDestinations(Destinations) error
}

// Members says which processes and user ids are in which nodes.
type Members interface {
	// Join makes a process and its descendants members of a node of KindTree with Subject 0. Every tree that
	// encloses the process has to enclose the node.
	Join(id uint32, pid int) error
	// Leave takes a node of KindTree, with all its members, out of the joinable node that directly encloses it.
	// After that the node is inside that node's parent. Its open connections obey at once.
	Leave(id uint32) error
	// Trees lists the nodes of KindTree that a process is in, innermost first.
	Trees(pid int) []uint32
	// SetSubordinates says which user ids count as another user's. The list is sorted and its ranges do not
	// overlap.
	SetSubordinates([]Subordinates) error
}

// Requests has what programs ask for by socket options.
type Requests interface {
	// Requests delivers the requests that programs make by a socket option. The daemon answers each of them with an
	// errno and the limit that holds.
	Requests() <-chan Request
	Answer(number uint64, answer Answer) error
	// Asker returns the socket that made the Request of that number, with its reservation. The result is false if
	// the socket has gone.
	Asker(number uint64) (SocketReservation, bool, error)
	// Reserved lists the sockets with a reservation.
	Reserved() ([]SocketReservation, error)
	// Reserve gives the socket with that cookie a reservation, changes it, or takes it away. The reservation ends
	// with the socket.
	Reserve(SocketReservation) error
	// SetAdminGroup says which group's Requests are an administrator's, beside root's. With nil only root is an
	// administrator.
	SetAdminGroup(gid *uint32) error
}

// Events tells what happens, and lets the kernel side act on it.
type Events interface {
	// Events delivers a value whenever a socket needs Maintain at once.
	Events() <-chan struct{}
	// Maintain re-arms sockets that lost their callbacks to another program, and adopts sockets that changed hands.
	// The daemon calls it once a second while there are nodes, and when Events reports that a socket needs it.
	Maintain() error
	// FollowExecs starts or stops the delivery of exec events by Execs.
	FollowExecs(on bool) error
	Execs() <-chan Exec
	// LostEvents counts the events that Execs and Events could not deliver.
	LostEvents() (uint64, error)
}

// Figures reads what traffic, sockets and queues do.
type Figures interface {
	Stats() ([]NodeStats, error)
	Sockets() ([]SocketStats, error)
	// Stateless returns the sockets without room for state for which a limit holds. No other method has them.
	Stateless() (StatelessStats, error)
	// Unknown returns the traffic that has no known process.
	Unknown() (UnknownStats, error)
	// Look returns Stats and Sockets of one node. Its cost does not grow with the number of other nodes and
	// sockets. The process count is that of the last Stats or change.
	Look(id uint32) (NodeStats, []SocketStats, error)
	// Inspect returns the present state of the sockets for which a limit holds and that wanted picks. The arguments
	// of wanted are the inode of the socket's file and the process that used it last.
	Inspect(wanted func(inode uint64, pid uint32) bool) ([]SocketLook, error)
	// Queues lists the places where packets may wait at present.
	Queues() ([]Queue, error)
}

// Paths measures paths and lets the caller pace a node along one.
type Paths interface {
	// SentBytes returns Bytes of Stats for one node. Callers may ask many times a second.
	SentBytes(id uint32) (uint64, error)
	// Peers lists the addresses to which the node's sockets sent last. For a node with Each it adds the addresses
	// that were recorded since the last call and still have nodes of the pool. They may be of any namespace (Netns
	// 0). For a node with Notes it adds every address that was recorded since the last call.
	Peers(id uint32) ([]Peer, error)
	// Probes marks a socket of this process as one that probes a path. Limits on destinations do not hold for it.
	// The socket must not have sent anything yet.
	Probes(fd int) error
	// Gate lets non-TCP egress of the node leave only as the returned gate allows. The gate checks at the given
	// interval whether the next packet may leave. The error is ErrNotSupported if the node has no queue at present,
	// or queues in several network namespaces.
	Gate(id uint32, every time.Duration) (Gate, error)
	// HoldQueue makes a queue for non-TCP egress of a network namespace (0: the daemon's) before any sender is
	// above its share. The queue stays until the caller calls release. At least one node must limit egress.
	HoldQueue(netns uint32) (release func(), err error)
}

// Programs says whether the programs of the kernel are in order.
type Programs interface {
	// Attached says for each program, by its name, whether it is attached at present.
	Attached() map[string]bool
	// Counters returns the counts, by name, of faults that let traffic pass without a limit.
	Counters() (map[string]uint64, error)
}
