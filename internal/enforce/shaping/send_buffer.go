package shaping

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// What waits of a socket is what its send buffer holds: two seconds at 64 KB/s. So
// the buffers of those that send more than their share are kept in proportion to
// that. No hook may do so for every kind of socket, the daemon can, by the process
// that has it. What the program had is kept beside the socket, is what the program
// reads, and is given back with the limit.

const (
	// bufferTime is how much of its share a socket may have waiting.
	bufferTime = 100 * time.Millisecond
	// A sender is woken when half of its buffer is free: with fewer packets it
	// would come too late. Datagrams in parts fail where they do not fit.
	leastPackets, leastDatagrams = 4.5, 2
	wholePacket                  = 2000 // larger ones are in parts
	// Memory that a byte takes, before it is known, and bounds of that.
	usualMemory, leastMemory, mostMemory = 2.0, 1.0, 16.0
	leastBuffer                          = 4608 // the kernel's
	// Pauses between two looks: after one that has changed something, doubled
	// while none does.
	bufferPause, mostBufferPause = 300 * time.Millisecond, 2 * time.Second
	// Looks last so long a part of the time at most.
	bufferPart = 20
)

// buffers is what was seen of the sockets' send buffers.
type buffers struct {
	some  bool      // some may be kept small
	next  time.Time // when to look again
	pause time.Duration
}

// sharers counts the sockets of which something waits, by where and whose they are.
type sharers map[sharer]int

type sharer struct {
	netns, node uint32
	child       uint64
}

func sharersOf(list []bpf.BufferRecord) sharers {
	out := sharers{}
	for i := range list {
		r := &list[i]
		if r.QueuedBytes == 0 {
			continue
		}
		for _, h := range r.Hops {
			if h.Node != 0 {
				out[sharer{r.Netns, h.Node, h.Child}]++
			}
		}
	}
	return out
}

// bufferFor is the buffer that a socket should have, 0 = its own: what it may send
// in bufferTime.
func (s *sender) bufferFor(r *bpf.BufferRecord, among sharers) uint32 {
	rate, room := math.Inf(1), math.Inf(1)
	for _, h := range r.Hops {
		n := s.nodes[h.Node]
		if n == nil {
			continue
		}
		due, known := n.rates[h.Child]
		if !known {
			due = float64(upCeiling(n.spec))
		}
		sockets := max(among[sharer{r.Netns, h.Node, h.Child}], 1)
		rate = min(rate, due/float64(sockets))
		if bound := n.spec.BacklogNS; bound != 0 {
			room = min(room, roomIn(due, time.Duration(bound), s.shareAt(r.Netns, h.Node), sockets, r.LargestBytes))
		}
	}
	if math.IsInf(rate, 1) {
		return 0
	}
	memory, inRoom := usualMemory, leastMemory // until it is known: of too large a buffer some would be dropped
	if r.QueuedBytes > 0 && !lostSome(r) {
		memory = min(max(float64(r.UsedBytes)/float64(r.QueuedBytes), leastMemory), mostMemory)
		inRoom = memory
	}
	least := float64(r.LargestBytes) * leastDatagrams
	if r.LargestBytes <= wholePacket {
		least = float64(r.LargestBytes) * leastPackets
	}
	want := max(min(max(rate*bufferTime.Seconds(), least)*memory, room*inRoom), leastBuffer)
	own := r.OwnBytes
	if own == 0 {
		own = r.SizeBytes
	}
	if want >= float64(own) {
		return 0
	}
	return uint32(want)
}

// bufferDiffers says whether a socket's buffer is worth being changed.
func bufferDiffers(r *bpf.BufferRecord, want uint32) bool {
	switch {
	case r.OwnBytes == 0: // it need not wait in what is larger
		return want != 0 && (r.UsedBytes > want+want/2 || lostSome(r))
	case want == 0:
		return true
	}
	return math.Abs(float64(want)-float64(r.SizeBytes)) > float64(r.SizeBytes)/4
}

// keepBuffers looks after buffers if some are too large, and now and then while some
// are kept small.
func (s *sender) keepBuffers(tooLong bool) error {
	now := time.Now()
	if !tooLong && !s.buffers.some || now.Before(s.buffers.next) {
		return nil
	}
	changed, err := s.setBuffers()
	if changed {
		s.buffers.pause = 0
	}
	s.buffers.pause = min(max(2*s.buffers.pause, bufferPause), mostBufferPause)
	s.buffers.next = time.Now().Add(s.buffers.pause + bufferPart*time.Since(now))
	return err
}

// setBuffers gives every socket of which something waits the buffer that it should
// have, and its own to those that no limit concerns any more.
func (s *sender) setBuffers() (changed bool, err error) {
	list, err := s.obj.ListBuffers()
	if err != nil {
		return false, fmt.Errorf("list what waits: %w", err)
	}
	among := sharersOf(list)
	var errs []error
	f := finder{lost: map[uint64]bool{}}
	s.buffers.some = false
	var small []*bpf.BufferRecord
	for i := range list {
		r := &list[i]
		s.buffers.some = s.buffers.some || r.OwnBytes != 0
		s.noteLargest(r)
		want := s.bufferFor(r, among)
		if r.OwnBytes != 0 || want != 0 {
			small = append(small, r)
		}
		if !bufferDiffers(r, want) {
			continue
		}
		done, err := s.setBuffer(&f, r, want)
		errs = append(errs, err)
		changed = changed || done
		s.buffers.some = s.buffers.some || want != 0
	}
	return changed, errors.Join(append(errs, s.followShort(small))...)
}

// setBuffer sets the buffer of a socket, 0 = as it was. One that no process has, or
// of one that may not be looked into, stays as it is.
func (s *sender) setBuffer(f *finder, r *bpf.BufferRecord, want uint32) (done bool, err error) {
	fd := f.open(r.Tgid, r.Inode, want == 0)
	if fd < 0 {
		return false, nil
	}
	defer unix.Close(fd)
	var now bpf.Buffer
	err = s.base.Buffers.Lookup(int32(fd), &now)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return false, fmt.Errorf("read what the buffer of a socket was: %w", err)
	}
	if now.OwnBytes != r.OwnBytes { // the program has set it meanwhile
		return true, nil
	}
	own := r.OwnBytes
	if own == 0 {
		own = r.SizeBytes
	}
	note, size := bpf.Buffer{OwnBytes: own, Set: want / 2}, want
	if want == 0 {
		note, size = bpf.Buffer{Set: own / 2}, own
	}
	// By what is set, it is known that it was not the program.
	if err := s.base.Buffers.Put(int32(fd), &note); err != nil {
		return false, fmt.Errorf("note the buffer of a socket: %w", err)
	}
	// the kernel takes half of what it says
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, int(note.Set)); err != nil {
		return false, errors.Join(fmt.Errorf("set the buffer of a socket to %d: %w", size, err), s.base.Buffers.Put(int32(fd), &now))
	}
	return true, nil
}

// releaseBuffers gives sockets that no limit concerns any more their own buffers.
func (s *sender) releaseBuffers() error {
	if !s.buffers.some {
		return nil
	}
	_, err := s.setBuffers()
	return err
}

// giveBuffersBack gives all sockets their own.
func (s *sender) giveBuffersBack() error {
	nodes := s.nodes
	s.nodes = nil
	defer func() { s.nodes = nodes }()
	return s.releaseBuffers()
}

// finder finds sockets by their inode numbers.
type finder struct {
	lost map[uint64]bool // that no process has
	all  map[uint64]file // of all processes, once they have been looked at
}

type file struct {
	tgid uint32
	fd   int
}

// open gives another descriptor of a socket, of the process that used it last, or, if
// it has to be found, of any; -1 if there is none.
func (f *finder) open(tgid uint32, inode uint64, anywhere bool) int {
	if inode == 0 || f.lost[inode] {
		return -1
	}
	fd := -1
	eachSocket(tgid, func(at int, of uint64) bool {
		if of == inode {
			fd = descriptorOf(file{tgid, at}, inode)
		}
		return of != inode
	})
	if fd < 0 && anywhere {
		fd = descriptorOf(f.find(inode), inode)
	}
	f.lost[inode] = fd < 0
	return fd
}

func (f *finder) find(inode uint64) file {
	if f.all != nil {
		return f.all[inode]
	}
	f.all = map[uint64]file{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return file{}
	}
	for _, e := range entries {
		tgid, err := strconv.ParseUint(e.Name(), 10, 32)
		if err != nil {
			continue
		}
		eachSocket(uint32(tgid), func(at int, of uint64) bool {
			f.all[of] = file{uint32(tgid), at}
			return true
		})
	}
	return f.all[inode]
}

// eachSocket calls visit for the sockets among a process's files until it says no.
func eachSocket(tgid uint32, visit func(fd int, inode uint64) bool) {
	dir := fmt.Sprintf("/proc/%d/fd", tgid)
	d, err := os.Open(dir)
	if err != nil {
		return // it has ended
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1) // what can be read
	for _, name := range names {
		to, err := os.Readlink(dir + "/" + name)
		if err != nil {
			continue
		}
		fd, _ := strconv.Atoi(name)
		if inode, ok := enforce.SocketInode(to); ok && !visit(fd, inode) {
			return
		}
	}
}

// descriptorOf is another descriptor of a process's file, if that is the socket still.
func descriptorOf(f file, inode uint64) int {
	if f.tgid == 0 {
		return -1
	}
	pidfd, err := unix.PidfdOpen(int(f.tgid), 0)
	if err != nil {
		return -1
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, f.fd, 0)
	if err != nil {
		return -1
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Ino != inode || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		unix.Close(fd)
		return -1
	}
	return fd
}
