package e2e

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What of io_uring's interface sendByURing needs; see io_uring_setup(2).
const (
	uringSetupSQPoll = 1 << 1
	uringEnterGet    = 1 << 0
	uringEnterWakeup = 1 << 1
	uringNeedWakeup  = 1 << 0
	uringOpSend      = 26
	uringAsync       = 1 << 4 // IOSQE_ASYNC: a kernel thread does it
	uringSubmissions = 0
	uringCompletions = 0x8000000
	uringEntries     = 0x10000000
	uringDepth       = 8
	uringBytes       = 1 << 16
	sizeofCompletion = 16
	sizeofSubmission = 64
	sizeofUint32     = 4
	uringIdle        = 1000 // ms after which the polling thread sleeps
)

type uringSQOffsets struct {
	Head, Tail, RingMask, RingEntries, Flags, Dropped, Array, _ uint32
	_                                                           uint64
}

type uringCQOffsets struct {
	Head, Tail, RingMask, RingEntries, Overflow, Cqes, Flags, _ uint32
	_                                                           uint64
}

type uringParams struct {
	SQEntries, CQEntries, Flags, SQThreadCPU, SQThreadIdle, Features, WQFd uint32
	_                                                                      [3]uint32
	SQ                                                                     uringSQOffsets
	CQ                                                                     uringCQOffsets
}

type uringSubmission struct {
	Opcode, Flags uint8
	_             uint16
	FD            int32
	Off, Addr     uint64
	Len, OpFlags  uint32
	UserData      uint64
	_             [3]uint64
}

// sendByURing says "uring ready" or why it cannot, waits for a word, and sends
// for ever.
func sendByURing(to string, polled bool) error {
	var p uringParams
	if polled {
		p.Flags, p.SQThreadIdle = uringSetupSQPoll, uringIdle
	}
	ring, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uringDepth, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		fmt.Println("uring", errno)
		return nil
	}
	fd, err := dial(to)
	if err != nil {
		return err
	}
	sq, err := unix.Mmap(int(ring), uringSubmissions, int(p.SQ.Array+p.SQEntries*sizeofUint32), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map the submission ring: %w", err)
	}
	cq, err := unix.Mmap(int(ring), uringCompletions, int(p.CQ.Cqes+p.CQEntries*sizeofCompletion), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map the completion ring: %w", err)
	}
	entries, err := unix.Mmap(int(ring), uringEntries, int(p.SQEntries*sizeofSubmission), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map the submissions: %w", err)
	}
	word := func(ring []byte, offset uint32) *uint32 { return (*uint32)(unsafe.Pointer(&ring[offset])) }
	data := make([]byte, uringBytes)
	fmt.Println("uring ready")
	awaitWord()
	for {
		// One send at a time: they must not overtake each other.
		tail := atomic.LoadUint32(word(sq, p.SQ.Tail))
		slot := tail & *word(sq, p.SQ.RingMask)
		e := (*uringSubmission)(unsafe.Pointer(&entries[slot*sizeofSubmission]))
		*e = uringSubmission{Opcode: uringOpSend, FD: int32(fd), Addr: uint64(uintptr(unsafe.Pointer(&data[0]))), Len: uringBytes}
		if !polled {
			e.Flags = uringAsync
		}
		*word(sq, p.SQ.Array+slot*sizeofUint32) = slot
		atomic.StoreUint32(word(sq, p.SQ.Tail), tail+1)

		submit, flags := uintptr(1), uintptr(uringEnterGet)
		if polled {
			submit = 0
			if atomic.LoadUint32(word(sq, p.SQ.Flags))&uringNeedWakeup != 0 {
				flags |= uringEnterWakeup
			}
		}
		if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, ring, submit, 1, flags, 0, 0); errno != 0 && errno != unix.EINTR {
			return fmt.Errorf("io_uring_enter: %w", errno)
		}
		for head := atomic.LoadUint32(word(cq, p.CQ.Head)); head != atomic.LoadUint32(word(cq, p.CQ.Tail)); head++ {
			at := p.CQ.Cqes + (head&*word(cq, p.CQ.RingMask))*sizeofCompletion
			if n := int32(*word(cq, at+8)); n < 0 {
				return fmt.Errorf("send by io_uring: %w", unix.Errno(-n))
			}
			atomic.StoreUint32(word(cq, p.CQ.Head), head+1)
		}
	}
}
