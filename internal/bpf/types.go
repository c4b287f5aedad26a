package bpf

// The structs of bpf/types.h, as bpf2go made them.
//
//revive:disable:exported
type (
	Node         = netniceNnNode
	Limit        = netniceNnLimit
	ClockKey     = netniceNnClockKey
	Clock        = netniceNnClock
	ClassKey     = netniceNnClassKey
	Class        = netniceNnClass
	Socket       = netniceNnSocket
	SocketSeen   = netniceNnSocketSeen
	Buffer       = netniceNnBuffer
	Task         = netniceNnTask
	TaskRecord   = netniceNnTaskRecord
	MemberRecord = netniceNnMemberRecord
	EgressEvent  = netniceNnEgressEvent
	QueueWanted  = netniceNnQueueEvent
	ExecEvent    = netniceNnExecEvent
	Policy       = netniceNnPolicy
	Subordinate  = netniceNnSubordinate
	Volume       = netniceNnVolume
	Hop          = netniceNnHop
	Request      = netniceNnRequest
	Answer       = netniceNnAnswer

	DestinationKey   = netniceNnDestinationKey
	Destination      = netniceNnDestination
	DestinationEntry = netniceNnDestinationEntry
	DestinationUse   = netniceNnDestinationUse
	PeerMet          = netniceNnPeerMet
	Stored           = netniceNnStored
	LinkKey          = netniceNnLinkKey
	formerSocket     = netniceNnFormerSocket
)

//revive:enable:exported

// SocketRecord is what the iterators write for a socket: its state, and what they see of the socket itself.
type SocketRecord struct {
	State Socket
	SocketSeen
}

// MaxNodes is the number of node indexes. Index 0 means no node.
const MaxNodes = 16384

// Flags of Node.Flags and Socket.Flags, kinds and directions of bpf/types.h.
const (
	NodeLive     = uint32(netniceNnNodeFlagsNN_NODE_LIVE)
	NodeLoopback = uint32(netniceNnNodeFlagsNN_NODE_LOOPBACK)
	NodeMeterOff = uint32(netniceNnNodeFlagsNN_NODE_METER_OFF)
	NodeOwn      = uint32(netniceNnNodeFlagsNN_NODE_OWN)
	NodeEach     = uint32(netniceNnNodeFlagsNN_NODE_EACH)
	NodeNotes    = uint32(netniceNnNodeFlagsNN_NODE_NOTES)
	NodeLapses   = uint32(netniceNnNodeFlagsNN_NODE_LAPSES)
	NodeStored   = uint32(netniceNnNodeFlagsNN_NODE_STORED)

	NodeSliceOnly = uint32(netniceNnNodeFlagsNN_NODE_SLICE_ONLY)

	SocketArmed    = uint32(netniceNnSocketFlagsNN_SOCK_ARMED)
	SocketSubflows = uint32(netniceNnSocketFlagsNN_SOCK_SUBFLOWS)
	SocketChanged  = uint32(netniceNnSocketFlagsNN_SOCK_CHANGED)
	SocketLoopback = uint32(netniceNnSocketFlagsNN_SOCK_LOOPBACK)
	SocketStatic   = uint32(netniceNnSocketFlagsNN_SOCK_STATIC)
	SocketProbes   = uint32(netniceNnSocketFlagsNN_SOCK_PROBES)

	EventRate  = uint32(netniceNnEventNN_EVENT_RATE)
	EventHeld  = uint32(netniceNnEventNN_EVENT_HELD)
	EventQueue = uint32(netniceNnEventNN_EVENT_QUEUE)
	EventCover = uint32(netniceNnEventNN_EVENT_COVER)
	EventGate  = uint32(netniceNnEventNN_EVENT_GATE)

	KindSocket = uint32(netniceNnNodeKindNN_NODE_SOCKET)
	KindTree   = uint32(netniceNnNodeKindNN_NODE_TREE)
	KindCgroup = uint32(netniceNnNodeKindNN_NODE_CGROUP)
	KindUser   = uint32(netniceNnNodeKindNN_NODE_USER)
	KindLink   = uint32(netniceNnNodeKindNN_NODE_LINK)
	KindHost   = uint32(netniceNnNodeKindNN_NODE_HOST)

	KindDestination = uint32(netniceNnNodeKindNN_NODE_DESTINATION)

	DestinationsAny  = uint32(netniceNnDestinationsFlagsNN_DESTINATIONS_ANY)
	DestinationsDown = uint32(netniceNnDestinationsFlagsNN_DESTINATIONS_DOWN)

	UnknownSentSocket = uint32(netniceNnUnknownNN_UNKNOWN_SENT_SOCKET)
	UnknownSentKernel = uint32(netniceNnUnknownNN_UNKNOWN_SENT_KERNEL)
	UnknownCameSocket = uint32(netniceNnUnknownNN_UNKNOWN_CAME_SOCKET)
	UnknownCameKernel = uint32(netniceNnUnknownNN_UNKNOWN_CAME_KERNEL)
	UnknownCameNobody = uint32(netniceNnUnknownNN_UNKNOWN_CAME_NOBODY)

	DirectionUp    = uint32(netniceNnDirectionNN_UP)
	DirectionTotal = uint32(netniceNnDirectionNN_TOTAL)
)

const (
	// PathMax is the largest number of nodes on a path.
	PathMax = 8
	// TreesDeep is how deep process trees may be nested.
	TreesDeep = 16
	// BookAdmin is the number of the administrator's rule set. The number of another rule set is the uid of its user.
	BookAdmin = ^uint32(0)
	// RuleEverybody is a bit of a rule's number. The rule then applies to everybody that its owner may limit.
	RuleEverybody = uint32(1) << 31
	// MaxSubordinates bounds the entries of the map subordinates.
	MaxSubordinates = 4096
)
