package observe

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/netnamespace"
)

// A stateless socket has no room for netnice's state: see enforce.StatelessStats. The kernel side notes it by its
// cookie and does not learn that it was closed. Lists therefore leave out those whose process has ended. A question
// about one process compares them with the sockets of its network namespace.

// stateless reads the stateless sockets of processes that still run. The caller must not hold a lock under which limits
// are set.
func (s *sampler) stateless() (enforce.StatelessStats, error) {
	stats, err := s.kernel.Stateless()
	if err != nil {
		return stats, fmt.Errorf("read the sockets without room for state: %w", err)
	}
	type process struct {
		pid   uint32
		start uint64
	}
	runs := make(map[process]bool)
	stats.Sockets = slices.DeleteFunc(slices.Clone(stats.Sockets), func(socket enforce.StatelessSocket) bool {
		p := process{socket.PID, socket.StartBoottimeNS}
		is, known := runs[p]
		if !known {
			is = p.pid == 0 || s.resolver.Alive(int(p.pid), p.start)
			runs[p] = is
		}
		return !is
	})
	return stats, nil
}

// roomRemedy says what gives the sockets of a process room for state; a pid of 0 stands for no process in particular.
func roomRemedy(pid int) string {
	within := ""
	if ns, err := netnamespace.Of(strconv.Itoa(pid)); err == nil && pid != 0 {
		if own, err := netnamespace.Of("self"); err == nil && own != ns {
			within = fmt.Sprintf("nsenter -t %d -n ", pid)
		}
	}
	return "sudo " + within + "sysctl -w net.core.optmem_max=131072 gives room, unless the program fills its option memory itself (TCP_MD5SIG keys, socket filters)"
}

// wholeEffect says what has no room for state, and what follows.
func wholeEffect(sockets int) string {
	whose := "1 socket has no room for state: its limits hold for it"
	if sockets != 1 {
		whose = fmt.Sprintf("%d sockets have no room for state: their limits hold for each", sockets)
	}
	return whose + " as a whole, and TCP sends 0.2 to 0.6 of its limit then"
}

// NoteStateless completes the answer to a change of a node's limits: it counts the node's stateless sockets, and returns
// the warning about them. The caller holds no lock under which limits are set.
func (o *Observer) NoteStateless(n *api.Node) []string {
	if len(n.Limits) == 0 {
		return nil
	}
	stats, err := o.sampler.stateless()
	if err != nil {
		o.log.Warn("the sockets without room for state are not known", "err", err)
		return nil
	}
	if n.StatelessSockets = stats.OnNodes()[n.ID]; n.StatelessSockets == 0 {
		return nil
	}
	return []string{wholeEffect(n.StatelessSockets) + "; " + roomRemedy(n.PID)}
}

// addStateless adds the stateless sockets of the processes that the question is about, and what is to be said of these.
func (w *whyLooks) addStateless(user uint32) error {
	stats, err := w.observer.kernel.Stateless()
	if err != nil {
		return fmt.Errorf("read the sockets without room for state: %w", err)
	}
	if stats.Forgets(user) {
		w.notes = append(w.notes, "more sockets without room for state were used than netnice notes, some of them by the user of this process: those of the user that it has forgotten neither send nor receive; "+roomRemedy(w.pid))
	}
	if len(stats.Sockets) == 0 {
		return nil
	}
	byCookie := make(map[uint64]enforce.StatelessSocket, len(stats.Sockets))
	for _, s := range stats.Sockets {
		byCookie[s.Cookie] = s
	}
	count := 0
	err = w.processes.inetSockets(w.observer.resolver, func(open netnamespace.InetSocket) {
		s, is := byCookie[open.Cookie]
		if !is || !w.wanted(open.Inode, s.PID) {
			return
		}
		look := statelessLook(s, open)
		id := socketID{inode: open.Inode, local: address(look, true), remote: address(look, false)}
		if w.sockets[id] == nil { // MPTCP's socket has the id of a subflow, which may have room
			w.sockets[id] = &whyLook{first: look, last: look, isStateless: true}
			count++
		}
	})
	if err != nil { // then the sockets that its processes used last count, as far as these are known
		count = 0
		w.observer.log.Warn("the sockets without room for state are not found in the processes", "pid", w.pid, "err", err)
		for _, s := range stats.Sockets {
			if _, asked := w.processes.byID[int(s.PID)]; asked && w.all {
				count++
			}
		}
	}
	if count > 0 {
		w.notes = append(w.notes, wholeEffect(count)+"; "+roomRemedy(w.pid))
	}
	return nil
}

// statelessLook describes a stateless socket as Inspect describes others.
func statelessLook(s enforce.StatelessSocket, open netnamespace.InetSocket) (look enforce.SocketLook) {
	bytes := func(a netip.Addr) (out [16]byte) {
		copy(out[:], a.AsSlice()) // IPv4 in the first four
		return out
	}
	look.SocketStats = enforce.SocketStats{
		PID: s.PID, UID: s.UID, Nodes: s.Nodes, Family: open.Family,
		Local: bytes(open.Local.Addr()), LocalPort: open.Local.Port(), Remote: bytes(open.Remote.Addr()), RemotePort: open.Remote.Port(),
	}
	look.Inode, look.Protocol, look.Loopback = open.Inode, open.Protocol, s.Loopback
	return look
}

// inetSockets calls f for each socket in the network namespaces of the processes.
func (p *whyProcesses) inetSockets(r *identity.Resolver, f func(netnamespace.InetSocket)) error {
	var errs []error
	for _, pid := range p.onePerNamespace() {
		errs = append(errs, r.InetSockets(pid, f))
	}
	return errors.Join(errs...)
}
