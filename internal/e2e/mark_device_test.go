package e2e

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// Marks need no limit on a device. They hold on later devices, in another namespace than the daemon's, for every
// family and protocol; another daemon takes them over. Programs are on devices while there are marks, and on none
// before and after.
func TestMarkEverywhere(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestMark")
	t.Parallel()
	s := newStage(t)
	before := ours(t)
	f := newField(s)
	first := s.daemon()
	x := f.send(testbed.SenderConfig{})
	f.ports += 3
	v6, udp, later := f.ports-2, f.ports-1, f.ports
	both := f.python(options{in: f.A}, sendsBoth, fmt.Sprintf("[%s]:%d", f.B6, v6), f.to(udp))
	both.read("ready")
	watch := f.python(options{in: f.B}, marks, testbed.Device)
	watch.read("ready")
	f.onDevice("before", testbed.Device, 0)
	f.must("set", "--user", "0", "--up", "2GB/s") // the limit is independent of marks
	f.onDevice("a limit", testbed.Device, 0)
	f.classes(watch, "without a mark", map[uint16]uint8{x.port: 0, v6: 0, udp: 0x22})

	f.must("set", "--pid", both.pid(), "--dscp", "ef")
	f.onDevice("a mark", testbed.Device, 1)
	f.classes(watch, "marked", map[uint16]uint8{x.port: 0, v6: 46 << 2, udp: 46<<2 | 2})

	// A new device appears, and one gets a limit, too.
	remove := f.join("nn1", "10.96.0")
	wide := f.python(options{in: f.B}, marks, "nn1")
	wide.read("ready")
	more := f.python(options{in: f.A}, sendsBoth, fmt.Sprintf("[%s]:%d", f.B6, v6), fmt.Sprintf("10.96.0.2:%d", later))
	more.read("ready")
	f.must("set", "--pid", more.pid(), "--dscp", "cs1")
	f.classes(wide, "a device that came", map[uint16]uint8{later: 8<<2 | 2})
	f.must("set", linkOf(t, f.A, "nn1"), "--up", "10MB/s")
	f.classes(wide, "limited, too", map[uint16]uint8{later: 8<<2 | 2})
	f.onDevice("limited, too", "nn1", 1)

	made := objectsOf(t, first.cmd.Process.Pid)
	first.kill()
	f.classes(watch, "without a daemon", map[uint16]uint8{x.port: 0, udp: 46<<2 | 2})
	second := s.daemon()
	f.classes(watch, "another daemon", map[uint16]uint8{x.port: 0, udp: 46<<2 | 2})
	f.must("set", "--pid", both.pid(), "--dscp", "af21")
	f.classes(watch, "by it", map[uint16]uint8{x.port: 0, udp: 18<<2 | 2})

	f.must("set", "--pid", both.pid(), "--dscp", "none")
	f.must("set", "--pid", more.pid(), "--dscp", "none")
	f.onDevice("no mark", testbed.Device, 0)
	f.onDevice("no mark, but a limit", "nn1", 1)
	f.classes(watch, "lifted", map[uint16]uint8{x.port: 0, v6: 0, udp: 0x22})
	f.must("set", "--pid", both.pid(), "--dscp", "ef")
	maps.Copy(made, objectsOf(t, second.cmd.Process.Pid))
	s.must("down")
	<-second.ended
	f.onDevice("after down", testbed.Device, 0)
	f.onDevice("after down", "nn1", 0)
	f.classes(watch, "after down", map[uint16]uint8{x.port: 0, udp: 0x22})
	remove()
	s.leaves(made, before)
}

// onDevice checks the number of programs of marks and limits at the egress of a device of A.
func (f *field) onDevice(what, device string, want int) {
	f.t.Helper()
	l, err := f.A.Netlink().LinkByName(device)
	if err != nil {
		f.t.Fatal(err)
	}
	var names []string
	err = f.A.Do(func() error {
		list, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: ebpf.AttachTCXEgress})
		if err != nil {
			return err
		}
		for _, p := range list.Programs {
			program, err := ebpf.NewProgramFromID(p.ID)
			if err != nil {
				return err
			}
			info, err := program.Info()
			_ = program.Close()
			if err != nil {
				return err
			}
			names = append(names, info.Name)
		}
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name != "nn_meter" })
	if len(names) != want {
		f.t.Errorf("%s: %d programs of marks on %s, want %d", what, len(names), device, want)
	}
}
