package pacing

import (
	"fmt"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// execs delivers exec events while the daemon follows them.
type execs struct {
	reader *ringbuf.Reader // nil = nobody has asked for exec events yet
	list   chan enforce.Exec
	done   chan struct{}
}

// mostExecs is how many exec events wait for the reader. Further ones wait in the kernel's buffer.
const mostExecs = 64

func newExecs() execs {
	return execs{list: make(chan enforce.Exec, mostExecs), done: make(chan struct{})}
}

// Execs implements enforce.Events.
func (k *Kernel) Execs() <-chan enforce.Exec { return k.execs.list }

// FollowExecs implements enforce.Events.
func (k *Kernel) FollowExecs(on bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if on && k.execs.reader == nil {
		r, err := ringbuf.NewReader(k.obj.Execs)
		if err != nil {
			return fmt.Errorf("open the buffer of executed programs: %w", err)
		}
		k.execs.reader = r
		go k.readExecs(r)
	}
	return k.obj.AttachExecs(on)
}

func (k *Kernel) readExecs(r *ringbuf.Reader) {
	defer close(k.execs.done)
	for {
		record, err := r.Read()
		if err != nil {
			return
		}
		e, ok := bpf.Exec(record.RawSample)
		if !ok {
			continue
		}
		select {
		case k.execs.list <- enforce.Exec{PID: int(e.Tgid), StartBoottimeNS: e.StartBoottimeNs, TimeNS: e.TimeNs}:
		case <-k.stop:
			return
		}
	}
}

// endExecs ends the reader, after stop was closed.
func (k *Kernel) endExecs() error {
	if k.execs.reader == nil {
		return nil
	}
	err := k.execs.reader.Close()
	<-k.execs.done
	return err
}

// LostEvents implements enforce.Events.
func (k *Kernel) LostEvents() (uint64, error) {
	counters, err := k.Counters()
	return counters[bpf.FaultEventLost], err
}
