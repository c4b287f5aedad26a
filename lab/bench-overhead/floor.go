package overhead

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// floor is a set of empty programs at netnice's hooks for other traffic: they show the cost of a call, whatever the
// program does.
type floor struct {
	hooks []string
	links []link.Link
}

// These are the hooks: a send by TCP, and a packet that enters, or leaves, by the device in A.
const (
	hookSend = "send"
	hookIn   = "in"
	hookOut  = "out"
)

func newFloor(hooks []string) (*floor, error) {
	for _, h := range hooks {
		if !slices.Contains([]string{hookSend, hookIn, hookOut}, h) {
			return nil, fmt.Errorf("no hook %q: there are %s, %s, %s", h, hookSend, hookIn, hookOut)
		}
	}
	return &floor{hooks: hooks}, nil
}

// change attaches the programs, or detaches them.
func (f *floor) change(o *bench, on bool) error {
	var errs []error
	for _, l := range f.links {
		errs = append(errs, l.Close())
	}
	f.links = nil
	if !on {
		return errors.Join(errs...)
	}
	for _, hook := range f.hooks {
		l, err := attachEmpty(o, hook)
		if err != nil {
			return fmt.Errorf("attach an empty program: %s: %w", hook, err)
		}
		f.links = append(f.links, l)
	}
	return errors.Join(errs...)
}

func attachEmpty(o *bench, hook string) (l link.Link, err error) {
	if hook == hookSend {
		p, err := empty(ebpf.Tracing, "tcp_sendmsg_locked", 0)
		if err != nil {
			return nil, err
		}
		defer p.Close() // the link holds the program
		return link.AttachTracing(link.TracingOptions{Program: p})
	}
	p, err := empty(ebpf.SchedCLS, "", -1) // the verdict leaves the decision to the next program
	if err != nil {
		return nil, err
	}
	defer p.Close()
	at := ebpf.AttachTCXIngress
	if hook == hookOut {
		at = ebpf.AttachTCXEgress
	}
	err = o.pair.A.Do(func() error {
		devices, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, d := range devices {
			if d.Flags&net.FlagLoopback == 0 && d.Flags&net.FlagUp != 0 {
				l, err = link.AttachTCX(link.TCXOptions{Interface: d.Index, Program: p, Attach: at})
				return err
			}
		}
		return errors.New("no device")
	})
	return l, err
}

// empty loads a program that does nothing.
func empty(kind ebpf.ProgramType, tracepoint string, verdict int32) (*ebpf.Program, error) {
	spec := &ebpf.ProgramSpec{
		Type: kind, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()},
	}
	if tracepoint != "" {
		spec.AttachType, spec.AttachTo = ebpf.AttachTraceRawTp, tracepoint
	}
	p, err := ebpf.NewProgram(spec)
	if err != nil {
		return nil, fmt.Errorf("load an empty program: %w", err)
	}
	return p, nil
}
