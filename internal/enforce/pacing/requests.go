package pacing

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// requests are the requests for limits that programs make by the option NETNICE_LIMIT.
type requests struct {
	reader *ringbuf.Reader
	list   chan enforce.Request
	done   chan struct{}
}

const (
	mostRequests = 64 // requests that wait for the daemon; further ones wait in the kernel's buffer
	// These numbers are those of include/netnice.h.
	prioNetUser = 4
	prioPower   = 5
	askOnly     = ^uint64(0)
)

func (k *Kernel) startRequests() error {
	r, err := ringbuf.NewReader(k.obj.Requests)
	if err != nil {
		return fmt.Errorf("open the buffer of requests: %w", err)
	}
	k.requests = requests{reader: r, list: make(chan enforce.Request, mostRequests), done: make(chan struct{})}
	go k.readRequests()
	return nil
}

func (k *Kernel) readRequests() {
	defer close(k.requests.done)
	for {
		record, err := k.requests.reader.Read()
		if err != nil {
			return
		}
		r, ok := bpf.RequestOf(record.RawSample)
		// The number of a request is its time, in fractions of a nanosecond.
		age := time.Duration((bpf.NowNS()<<10 - r.Number) >> 10)
		if !ok || age > enforce.RequestPatience {
			continue // its program has stopped waiting, or asked an earlier daemon
		}
		request := requestOf(r)
		request.At = time.Now().Add(-age)
		select {
		case k.requests.list <- request:
		case <-k.stop:
			return
		}
	}
}

func requestOf(r bpf.Request) enforce.Request {
	out := enforce.Request{
		Number: r.Number, PID: int(r.Tgid), UID: r.Uid, GID: r.Gid, Admin: r.Admin != 0, Kind: enforce.KindUser,
	}
	if r.Reserves != 0 {
		reserve := r.Reserve
		out.Ask = reserve.SliceNs == askOnly
		out.Reserve = &enforce.SocketSlice{PeriodNS: reserve.PeriodNs, SliceNS: reserve.SliceNs, Extra: reserve.Extra != 0}
		return out
	}
	out.Who, out.Direction = r.Asked.Who, enforce.Direction(r.Asked.Direction)
	out.BytesPerSec, out.Ask = r.Asked.BytesPerSec, r.Asked.BytesPerSec == askOnly
	if r.Asked.Which != prioNetUser {
		out.Kind = enforce.KindTree
	}
	if r.Asked.Which == prioPower {
		out.Power, out.BytesPerSec = int(r.Asked.BytesPerSec)-enforce.Power0, 0
		out.OfPower = true
	}
	return out
}

// Requests implements enforce.Requests.
func (k *Kernel) Requests() <-chan enforce.Request { return k.requests.list }

// Answer implements enforce.Requests.
func (k *Kernel) Answer(number uint64, a enforce.Answer) error {
	answer := bpf.Answer{
		BytesPerSec: a.BytesPerSec, LeftBytesPerSec: a.LeftBytesPerSec,
		PeriodNs: a.PeriodNS, SliceNs: a.SliceNS, Error: a.Errno,
	}
	if a.Extra {
		answer.Extra = 1
	}
	if err := k.obj.Answers.Put(number, &answer); err != nil {
		return fmt.Errorf("answer a program: %w", err)
	}
	return nil
}

// SetAdminGroup implements enforce.Requests.
func (k *Kernel) SetAdminGroup(gid *uint32) error {
	var after uint64
	if gid != nil {
		after = uint64(*gid) + 1
	}
	if err := k.obj.AdminGroup.Set(after); err != nil {
		return fmt.Errorf("note the administrators' group: %w", err)
	}
	return nil
}

// endRequests ends the reader, after stop was closed.
func (k *Kernel) endRequests() error {
	if k.requests.reader == nil {
		return nil
	}
	err := k.requests.reader.Close()
	<-k.requests.done
	return err
}
