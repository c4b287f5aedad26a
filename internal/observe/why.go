package observe

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
)

const (
	whyPause = 40 * time.Millisecond // between two looks
	// whyCost bounds the cost of looks at very many sockets: the pause is at least this many times as long as a look.
	whyCost = 5
)

// Why measures which limits bind the connections of a process; fd -1 = all of them. It looks many times, as the binding
// limit may change from one moment to the next. An error with a remedy is an *api.Error.
func (o *Observer) Why(ctx context.Context, by auth.Actor, pid, fd int, over time.Duration) (api.Why, error) {
	res, err := o.whose(ctx, by, pid)
	if err != nil {
		return api.Why{}, err
	}
	leave, err := o.askers.enter(by)
	if err != nil {
		return api.Why{}, err
	}
	defer leave()
	w := whyLooks{observer: o, by: by, pid: int(res.Key), all: fd < 0, sockets: make(map[socketID]*whyLook)}
	if w.processes, err = o.whyProcessesOf(ctx, by, res, fd); err != nil {
		return api.Why{}, err
	}
	if err := w.measure(ctx, over); err != nil {
		return api.Why{}, err
	}
	packet := w.processes.packetSockets(o.resolver)
	if !o.resolver.Alive(w.pid, res.StartBoottimeNS) {
		return api.Why{}, &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("process %d has ended", w.pid), Hint: "ps -e"}
	}
	if err := w.addStateless(res.UID); err != nil {
		return api.Why{}, err
	}
	w.inForce = o.Snapshot()
	answer := w.render(packet)
	answer.Name = res.Name
	return answer, nil
}

// socketsOf lists the requested sockets, as a map from inode to descriptors.
func (o *Observer) socketsOf(pid, fd int) (map[uint64][]int, error) {
	if fd < 0 {
		return o.resolver.Sockets(pid)
	}
	inode, err := o.resolver.Socket(pid, fd)
	return map[uint64][]int{inode: {fd}}, err
}

// socketID identifies a socket during the measurement.
type socketID struct {
	inode         uint64
	local, remote netip.AddrPort
}

// whyLook holds the observations of one socket.
type whyLook struct {
	first, last enforce.SocketLook
	looks       int
	waited      int // looks at which it had data to send
	bound       map[turnKey]int
	queued      int  // looks at which received traffic waited in the queue
	isStateless bool // it has no room for state, and was not looked at
}

type turnKey struct {
	node      uint32
	direction api.Direction
}

// whyLooks is one measurement.
type whyLooks struct {
	observer    *Observer
	by          auth.Actor
	pid         int
	all         bool
	processes   whyProcesses
	sockets     map[socketID]*whyLook
	looks       int
	from, to    time.Time
	first, last Sample
	inForce     *Snapshot // after the measurement
	notes       []string
}

func (w *whyLooks) wanted(inode uint64, pid uint32) bool {
	if inode != 0 {
		_, open := w.processes.owners[inode]
		return open
	}
	_, asked := w.processes.byID[int(pid)]
	return w.all && asked
}

func (w *whyLooks) measure(ctx context.Context, over time.Duration) error {
	var err error
	if w.first, err = w.observer.sampler.stats(); err != nil {
		return err
	}
	w.from = time.Now()
	for {
		begin := time.Now()
		if err := w.look(); err != nil {
			return err
		}
		left := over - time.Since(w.from)
		if left <= 0 {
			break
		}
		pause := min(max(whyPause, whyCost*time.Since(begin)), left)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
	w.to = time.Now()
	w.last, err = w.observer.sampler.stats()
	return err
}

func (w *whyLooks) look() error {
	list, err := w.observer.kernel.Inspect(w.wanted)
	if err != nil {
		return fmt.Errorf("look at the sockets of process %d: %w", w.pid, err)
	}
	w.looks++
	for _, s := range list {
		id := socketID{inode: s.Inode, local: address(s, true), remote: address(s, false)}
		l := w.sockets[id]
		if l == nil {
			l = &whyLook{first: s, bound: make(map[turnKey]int)}
			w.sockets[id] = l
		}
		l.last = s
		l.add(s)
	}
	return nil
}

// span returns the time in seconds from the first look at the socket to the last.
func (l *whyLook) span() float64 { return (l.last.At - l.first.At).Seconds() }

// received reports whether traffic arrived during the measurement, or may have. Other sockets' traffic may wait in the
// same queue.
func (l *whyLook) received() bool {
	return l.last.Protocol != unix.IPPROTO_TCP || l.last.ReceivedBytes > l.first.ReceivedBytes
}

// add evaluates one look. The limit whose clock is the latest among those without credit binds. A socket whose
// departure time passed long ago waits for something else, even if other sockets of its program wait for a limit.
func (l *whyLook) add(s enforce.SocketLook) {
	l.looks++
	if s.Waits {
		l.waited++
		if t, ok := latest(s.Turns, func(t enforce.Turn) bool { return t.Direction != enforce.Down }, s.Static); ok && (s.Static || s.Departs > -late) {
			l.bound[turnKey{t.Node, limit.DirectionName(t.Direction)}]++
		}
	}
	if t, ok := latest(s.Turns, func(t enforce.Turn) bool { return t.Direction == enforce.Down && t.Ahead > 0 }, false); ok {
		l.queued++
		l.bound[turnKey{t.Node, api.Down}]++
	}
}

// late is the time by which a binding limit may be paid for already: timers are late, and then the next chunk has not
// been charged yet.
const late = 2 * time.Millisecond

func latest(turns []enforce.Turn, of func(enforce.Turn) bool, always bool) (best enforce.Turn, found bool) {
	for _, t := range turns {
		if of(t) && (always || t.Ahead > -min(late, t.Burst/4)) && (!found || t.Ahead > best.Ahead) {
			best, found = t, true
		}
	}
	return best, found
}

func address(s enforce.SocketLook, local bool) netip.AddrPort {
	ip, port := s.Remote, s.RemotePort
	if local {
		ip, port = s.Local, s.LocalPort
	}
	if s.Family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[:4])), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16(ip).Unmap(), port)
}

// render returns the result; packet has the inodes of packet sockets.
func (w *whyLooks) render(packet map[uint64]bool) api.Why {
	answer := api.Why{
		Version: api.Version, PID: w.pid, OverNS: uint64(w.to.Sub(w.from)), Looks: w.looks, Sockets: []api.WhySocket{},
		Processes: w.processes.api(), HiddenProcesses: w.processes.hidden, Notes: w.notes,
	}
	held := make(map[uint64]bool)
	for _, l := range w.sockets {
		answer.Sockets = append(answer.Sockets, w.socket(l))
		held[l.last.Inode] = true
	}
	for inode := range w.processes.owners {
		if held[inode] {
			continue
		}
		answer.Free++
		if packet[inode] {
			answer.Packet++
		}
	}
	order := w.processes.byID
	slices.SortFunc(answer.Sockets, func(a, b api.WhySocket) int {
		if a.Process != b.Process {
			return order[a.Process] - order[b.Process]
		}
		if len(a.FDs) > 0 && len(b.FDs) > 0 && a.FDs[0] != b.FDs[0] {
			return a.FDs[0] - b.FDs[0]
		}
		if len(a.FDs) != len(b.FDs) && (len(a.FDs) == 0 || len(b.FDs) == 0) {
			return len(b.FDs) - len(a.FDs)
		}
		return slices.Compare([]byte(a.Local+a.Remote), []byte(b.Local+b.Remote))
	})
	return answer
}

func (w *whyLooks) socket(l *whyLook) api.WhySocket {
	s := l.last
	owner, _ := w.processes.ownerOf(s.Inode, int(s.PID))
	out := api.WhySocket{
		FDs: owner.open[s.Inode], Process: owner.pid, Protocol: protocolName(s.Protocol), Local: address(s, true).String(),
		PID: int(s.PID), Loopback: s.Loopback, WaitingBytes: s.UnsentBytes, WaitNS: s.WaitNS,
		Limits: w.limits(l), Up: api.NothingToSend, Down: api.NothingComes,
	}
	if s.Inode == 0 || out.FDs == nil {
		out.FDs = []int{}
	}
	if s.RemotePort != 0 {
		out.Remote = address(s, false).String()
	}
	if span := l.span(); span > 0 && s.Protocol == unix.IPPROTO_TCP {
		rate := func(from, to uint64) *uint64 {
			r := uint64(float64(to-from) / span)
			return &r
		}
		out.SentBytesPerSec = rate(l.first.SentBytes, s.SentBytes)
		out.ReceivedBytesPerSec = rate(l.first.ReceivedBytes, s.ReceivedBytes)
	}
	if l.isStateless {
		out.Up, out.Down = api.LimitedWhole, api.LimitedWhole
		return out
	}
	if 2*l.waited > l.looks {
		out.Up = api.BoundElsewhere
	}
	for i := range out.Limits {
		limit := &out.Limits[i]
		if !limit.Holds {
			continue
		}
		if limit.Direction != api.Down && l.bind(limit, limit.Direction, l.waited) && 2*l.waited > l.looks {
			limit.Binds, out.Up = true, api.BoundByLimit
		}
		if l.received() && w.queues(out.Limits, i) && l.bind(limit, api.Down, l.looks) {
			limit.Binds, out.Down = true, api.BoundByLimit
		}
	}
	return out
}

// bind notes the part of the looks in which a limit bound in a direction, and reports whether it did so in most of
// them.
func (l *whyLook) bind(limit *api.WhyLimit, d api.Direction, of int) bool {
	n := l.bound[turnKey{limit.Node, d}]
	if n == 0 || of == 0 {
		return false
	}
	limit.Bound = max(limit.Bound, float64(n)/float64(of))
	return 2*n > of
}

// queues reports whether a limit is the one that the receive queue of its node enforces: the lowest that counts
// received traffic.
func (w *whyLooks) queues(limits []api.WhyLimit, i int) bool {
	n := w.inForce.Node(limits[i].Node)
	meterOff := n != nil && w.inForce.meterOff(n)
	counts := func(l api.WhyLimit) bool {
		return l.Holds && (l.Direction == api.Down || l.Direction == api.Total && !meterOff)
	}
	return counts(limits[i]) && !slices.ContainsFunc(limits, func(o api.WhyLimit) bool {
		return o.Node == limits[i].Node && counts(o) && o.BytesPerSec < limits[i].BytesPerSec
	})
}

// limits lists the limits on a socket's path, innermost first.
func (w *whyLooks) limits(l *whyLook) []api.WhyLimit {
	list := w.own(l)
	for _, id := range l.last.Nodes {
		n := w.inForce.Node(id)
		if n == nil {
			continue
		}
		rates := w.rates(id)
		limits := n.shownLimits()
		for _, limit := range limits {
			why := api.WhyLimit{Limit: limit, Subject: w.subject(l, n), Node: id}
			why.Holds = limit.Enforced && !slices.ContainsFunc(limits, func(o api.Limit) bool {
				return o.Direction == limit.Direction && o.BytesPerSec < limit.BytesPerSec
			}) && (!l.last.Loopback || n.Holding.Loopback())
			switch limit.Direction {
			case api.Down:
				use(&why, rates.down)
			case api.Total:
				use(&why, rates.total)
			default:
				use(&why, rates.up)
			}
			list = append(list, why)
		}
	}
	return list
}

// subject returns the subject of a limit on a socket's path as the caller may see it. Traffic of one of the requested
// processes belongs to its user, and so do the limits on it. A socket that such a process has open may be charged to
// another user's process.
func (w *whyLooks) subject(l *whyLook, n *Node) api.Subject {
	if _, asked := w.processes.byID[int(l.last.PID)]; asked || n.DestinationIsFor(w.by) {
		return n.Subject
	}
	s, _ := n.hidden()
	return s
}

// own lists the rates that the socket has by options. The socket itself paces its TCP egress. Other traffic needs a
// node, and traffic over lo that is not limited has none.
func (w *whyLooks) own(l *whyLook) []api.WhyLimit {
	list := []api.WhyLimit{}
	s := l.last
	limit := func(option string, d api.Direction, rate, used uint64, alone bool) {
		if rate == 0 {
			return
		}
		own := api.WhyLimit{
			Limit: api.Limit{
				Owner: "setsockopt", Direction: d, BytesPerSec: rate, BurstNS: limit.DefaultBurstNS, Enforced: alone || s.Own != 0,
			},
			Subject: api.Subject{Kind: api.KindSocket, ID: option},
		}
		own.Holds = alone || own.Enforced && !s.Loopback
		use(&own, used)
		list = append(list, own)
	}
	rates := w.rates(s.Own)
	tcp := s.Protocol == unix.IPPROTO_TCP
	if span := l.span(); tcp && span > 0 {
		rates.up = uint64(float64(s.SentBytes-l.first.SentBytes) / span)
	}
	limit("TCP_SNDRATE", api.Up, s.SocketRate, rates.up, tcp)
	limit("TCP_RCVRATE", api.Down, s.ReceiveRate, rates.down, false)
	return list
}

// rates returns the rates of a node's egress and ingress during the measurement.
func (w *whyLooks) rates(node uint32) flowRates {
	h := history{pointOf(w.first.At, w.first.Nodes[node])}
	return h.rates(pointOf(w.last.At, w.last.Nodes[node]), 0)
}

func use(l *api.WhyLimit, rate uint64) {
	l.UsedBytesPerSec = rate
	if l.BytesPerSec > 0 {
		l.Used = float64(rate) / float64(l.BytesPerSec)
	}
}

func protocolName(p uint16) string {
	switch p {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_MPTCP:
		return "mptcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_UDPLITE:
		return "udplite"
	case unix.IPPROTO_ICMP:
		return "icmp"
	case unix.IPPROTO_ICMPV6:
		return "icmpv6"
	}
	return "protocol " + strconv.Itoa(int(p))
}
