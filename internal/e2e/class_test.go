package e2e

import (
	"errors"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/testbed"
)

// The kernel may evict the class of a program while a transmit has it, and give its memory to another program's class.
// Then each is charged for what it sends itself: a class of another owner is made again.
func TestClassOfAnother(t *testing.T) {
	t.Parallel()
	const limit = 5e6
	f := newField(upStage(t))
	x := f.send(testbed.SenderConfig{Connections: 4})
	f.must("set", "--pid", x.pid(), "--up", "5MB/s")
	time.Sleep(2 * settle)
	changed := f.disown()
	if changed == 0 {
		t.Fatal("there is no class")
	}
	begin := testbed.Now()
	f.holds("after its class became another's", begin, limit, x.port)
	if left := f.disowned(); left > 0 {
		t.Errorf("%d of %d classes are still another's", left, changed)
	}
}

// eachClass calls a function for each class in the kernel, which may change it.
func (f *field) eachClass(do func(m *ebpf.Map, key bpf.ClassKey, c *bpf.Class) error) {
	f.t.Helper()
	f.do(func() error {
		m, err := ebpf.LoadPinnedMap("/sys/fs/bpf/netnice/classes", nil)
		if err != nil {
			return err
		}
		defer m.Close()
		var key bpf.ClassKey
		var value []byte
		var keys []bpf.ClassKey
		all := m.Iterate()
		for all.Next(&key, &value) {
			keys = append(keys, key)
		}
		err = all.Err()
		for _, key := range keys {
			var c bpf.Class
			if m.LookupWithFlags(key, &c, 0) == nil {
				err = errors.Join(err, do(m, key, &c))
			}
		}
		return err
	})
}

// anothers is the owner that a test gives to a class.
const anothers = 4711

// disown gives each class to another owner, and returns their number.
func (f *field) disown() (n int) {
	f.eachClass(func(m *ebpf.Map, key bpf.ClassKey, c *bpf.Class) error {
		n++
		c.Owner = anothers
		return m.Update(key, c, ebpf.UpdateExist)
	})
	return n
}

// disowned returns the number of classes that still have that owner.
func (f *field) disowned() (n int) {
	f.eachClass(func(_ *ebpf.Map, _ bpf.ClassKey, c *bpf.Class) error {
		if c.Owner == anothers {
			n++
		}
		return nil
	})
	return n
}
