package probe

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// receive runs until the socket is closed.
func (p *Prober) receive() {
	defer close(p.ended)
	buf, control := make([]byte, MaxSize), make([]byte, 256)
	for {
		n, at, err := p.socket.receive(buf, control)
		if err != nil {
			p.mu.Lock()
			closed := p.closed
			if !closed {
				p.reported = err // an ICMP error; more packets may come
			}
			p.mu.Unlock()
			if closed || !networkSaid(err) {
				return
			}
			continue
		}
		a, err := p.parse(buf[:n])
		if f := p.match(a, err, at); f != nil && f.tell != nil {
			f.tell(f.reply)
		}
	}
}

// networkSaid reports whether an error comes from an ICMP report, and not from the end of the socket.
func networkSaid(err error) bool {
	for _, e := range []error{
		unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EPROTO, unix.EACCES, unix.EPERM,
		unix.EMSGSIZE, unix.ENOPROTOOPT, unix.EHOSTDOWN, unix.EOPNOTSUPP, unix.ENONET, unix.EINTR, unix.ENOBUFS,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (p *Prober) parse(b []byte) (answer, error) {
	if p.cfg.Kind == UDP {
		r, err := parseReflect(b)
		if err != nil {
			return answer{}, err
		}
		if r.message != replyMessage {
			return answer{}, ErrMalformed
		}
		return answer{id: p.id, seq: r.seq, cookie: r.nonce, peerNS: r.receivedNS}, nil
	}
	if p.socket.raw && !p.v6 {
		var err error
		if b, err = withoutIPv4(b); err != nil {
			return answer{}, err
		}
	}
	return parseICMP(p.cfg.Kind, p.v6, b)
}

// match finds the packet that an answer belongs to, nil if there is none.
func (p *Prober) match(a answer, err error, at int64) *flight {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.waiting[a.seq]
	if err != nil || a.id != p.id || f == nil || f.cookie != a.cookie {
		// A raw socket receives the answers to other programs' packets, too.
		if err != nil || a.id == p.id {
			p.counters.Refused++
		}
		return nil
	}
	delete(p.waiting, a.seq)
	f.done, f.reply.ReceivedNS, f.reply.PeerNS = true, at, a.peerNS
	p.counters.Answered++
	p.latest = f.reply.RoundTrip()
	return f
}

// expire reports packets whose timeout has passed as lost, and sets the timer for the next packet.
func (p *Prober) expire() {
	var lost []*flight
	p.mu.Lock()
	now := time.Now()
	for len(p.order) > 0 && (p.order[0].done || !p.order[0].deadline.After(now)) {
		f := p.order[0]
		p.order = p.order[1:]
		if !f.done {
			f.done, f.reply.Lost = true, true
			delete(p.waiting, uint16(f.reply.Seq))
			p.counters.Lost++
			lost = append(lost, f)
		}
	}
	if len(p.order) > 0 && !p.closed {
		p.timer.Reset(time.Until(p.order[0].deadline))
	}
	p.mu.Unlock()
	for _, f := range lost {
		if f.tell != nil {
			f.tell(f.reply)
		}
	}
}
