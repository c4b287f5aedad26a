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

// The backlog of a socket is what its send buffer holds: two seconds at 64 KB/s. The daemon therefore keeps the buffers
// of sockets that send more than their share in proportion to that share. No hook may do that for every kind of
// socket. The daemon can, through the process that has the socket. The program's own size is stored with the socket.
// The program reads that size, and the socket gets it back when the limit ends.

const (
	// bufferTime is the queueing delay of a socket's packets, at its share, that a buffer allows.
	bufferTime = 100 * time.Millisecond
	// A buffer takes leastPackets at least. The kernel wakes a sender when half of its buffer is free. With fewer
	// packets the sender would come too late. A buffer for datagrams in fragments takes leastDatagrams at least. Such
	// a datagram fails if it does not fit.
	leastPackets, leastDatagrams = 4.5, 2
	wholePacket                  = 2000 // bytes; larger datagrams are in fragments
	// Bytes of memory that each byte in a buffer takes: the usual number, until it is measured, and its bounds.
	usualMemory, leastMemory, mostMemory = 2.0, 1.0, 16.0
	leastBuffer                          = 4608 // the kernel's own least size
	// bufferPause is the pause between two samples after one that has changed a buffer. The pause doubles while samples
	// change nothing, up to mostBufferPause.
	bufferPause, mostBufferPause = 300 * time.Millisecond, 2 * time.Second
	// Samples take at most 1/bufferPart of the time.
	bufferPart = 20
)

// buffers is the state of the sampling of sockets' send buffers.
type buffers struct {
	some  bool      // some sockets may have a small buffer
	next  time.Time // time of the next sample
	pause time.Duration

	settings settings
}

// sharers counts the sockets that have packets in a queue, by network namespace, node and child.
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

// bufferFor returns the size of the buffer that a socket should have. A buffer takes what its socket may send in
// bufferTime. A 0 stands for the program's own size.
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
	memory, inRoom := usualMemory, leastMemory // until measured: too large a buffer would cost packets
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

// bufferDiffers reports whether a socket's buffer differs enough to be changed.
func bufferDiffers(r *bpf.BufferRecord, want uint32) bool {
	switch {
	case r.OwnBytes == 0: // a large buffer does no harm while it holds little
		return want != 0 && (r.UsedBytes > want+want/2 || lostSome(r))
	case want == 0:
		return true
	}
	return math.Abs(float64(want)-float64(r.SizeBytes)) > float64(r.SizeBytes)/4
}

// keepBuffers sets the buffers if packets wait too long in some, and from time to time while some are small.
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

// setBuffers gives every socket that has packets in a queue the buffer that it should have. A socket that no limit
// concerns any more gets its own size back.
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
		if !bufferDiffers(r, want) || want != 0 && r.Locked != 0 {
			continue
		}
		done, err := s.setBuffer(&f, r, want)
		errs = append(errs, err)
		changed = changed || done
		s.buffers.some = s.buffers.some || want != 0
	}
	return changed, errors.Join(append(errs, s.followShort(small))...)
}

// setBuffer sets the buffer of a socket; with want = 0 the socket gets its own size back. The buffer stays as it is if
// no process has the socket, or if netnice may not look into that process.
func (s *sender) setBuffer(f *finder, r *bpf.BufferRecord, want uint32) (done bool, err error) {
	fd := f.open(r.Tgid, r.Inode, want == 0)
	if fd < 0 {
		return false, nil
	}
	var now bpf.Buffer
	err = s.base.Buffers.Lookup(int32(fd), &now)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return false, errors.Join(fmt.Errorf("read what the buffer of a socket was: %w", err), unix.Close(fd))
	}
	if now.OwnBytes != r.OwnBytes { // the program has set it meanwhile
		return true, unix.Close(fd)
	}
	own := r.OwnBytes
	if own == 0 {
		own = r.SizeBytes
	}
	note, size := bpf.Buffer{OwnBytes: own, Set: want / 2}, want
	if want == 0 {
		note, size = bpf.Buffer{Set: own / 2}, own
	}
	// The note holds the size that is set next. From that, the hook knows that the setter is not the program.
	if err := s.base.Buffers.Put(int32(fd), &note); err != nil {
		return false, errors.Join(fmt.Errorf("note the buffer of a socket: %w", err), unix.Close(fd))
	}
	return s.buffers.settings.within(settingTime, func() error {
		// The kernel doubles the value that it is given.
		err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, int(note.Set))
		if err != nil {
			err = errors.Join(fmt.Errorf("set the buffer of a socket to %d: %w", size, err), s.base.Buffers.Put(int32(fd), &now))
		}
		return errors.Join(err, unix.Close(fd))
	})
}

// releaseBuffers gives sockets that no limit concerns any more their own sizes back.
func (s *sender) releaseBuffers() error {
	if !s.buffers.some {
		return nil
	}
	_, err := s.setBuffers()
	return err
}

// giveBuffersBack gives all sockets their own buffer sizes back.
func (s *sender) giveBuffersBack() error {
	nodes := s.nodes
	s.nodes = nil
	defer func() { s.nodes = nodes }()
	return s.releaseBuffers()
}

// finder finds sockets by their inode numbers.
type finder struct {
	lost map[uint64]bool // sockets that were not found
	all  map[uint64]file // the sockets of all processes, nil until find has read them
}

type file struct {
	tgid uint32
	fd   int
}

// open returns a new descriptor of a socket, taken from the process that used it last; -1 if it finds none. With
// anywhere it searches all other processes, too.
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

// eachSocket calls visit for the sockets among a process's files until visit returns false.
func eachSocket(tgid uint32, visit func(fd int, inode uint64) bool) {
	dir := fmt.Sprintf("/proc/%d/fd", tgid)
	d, err := os.Open(dir)
	if err != nil {
		return // the process has ended
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1) // the names that can be read are enough
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

// descriptorOf returns a new descriptor of a process's file, if that still is the socket; else -1.
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
