package e2e

import (
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sendByURing needs these parts of io_uring's interface; see io_uring_setup(2).
const (
	uringSetupSQPoll = 1 << 1
	uringEnterGet    = 1 << 0
	uringEnterWakeup = 1 << 1
	uringNeedWakeup  = 1 << 0
	uringOpSend      = 26
	uringAsync       = 1 << 4 // IOSQE_ASYNC: a kernel thread executes the request
	uringSubmissions = 0
	uringCompletions = 0x8000000
	uringEntries     = 0x10000000
	uringDepth       = 8
	uringBytes       = 1 << 16
	sizeofCompletion = 16
	sizeofSubmission = 64
	sizeofUint32     = 4
	uringIdle        = 1000 // ms after which the polling thread sleeps

	uringFixedFile       = 1 << 0 // IOSQE_FIXED_FILE
	uringRegisterFiles   = 2
	uringRegisterRings   = 20
	uringEnterRegistered = 1 << 4
	uringAllBytes        = 1 << 30 // in one submission
	uringDatagramBytes   = 1400
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

func uringRegister(ring uintptr, what uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, ring, what, uintptr(arg), 1, 0, 0); errno != 0 {
		return fmt.Errorf("io_uring_register %d: %w", what, errno)
	}
	return nil
}

// takePassed says "uring ready", and takes a socket that another process passes by the Unix socket of that name.
func takePassed(name string, _ int) (int, error) {
	at, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("make a Unix socket: %w", err)
	}
	defer unix.Close(at)
	if err := unix.Bind(at, &unix.SockaddrUnix{Name: "@" + name}); err != nil {
		return -1, fmt.Errorf("bind the Unix socket %s: %w", name, err)
	}
	fmt.Println("uring ready")
	rights := make([]byte, unix.CmsgSpace(sizeofUint32))
	_, n, _, _, err := unix.Recvmsg(at, make([]byte, 1), rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("receive a socket: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return -1, fmt.Errorf("%d control messages with a socket: %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, fmt.Errorf("%d sockets: %w", len(fds), err)
	}
	return fds[0], nil
}

// sendByURing says "uring ready" or the reason why it cannot, waits for a command, and sends for ever.
// The values of how are:
//   - plain and sqpoll;
//   - fixed: only the ring has the socket, and gets one large request;
//   - unseen: the ring has no descriptor either;
//   - datagrams: like fixed;
//   - passed and worked: datagrams by a socket that another process passes by the Unix socket of that name.
//     sendByURing then says "uring has". For worked a kernel thread sends.
func sendByURing(to, how string) error {
	polled, passed, fixed, kind, bytes := how == "sqpoll", how == "passed" || how == "worked", false, unix.SOCK_STREAM, uint32(uringBytes)
	switch how {
	case "fixed", "unseen":
		fixed, bytes = true, uringAllBytes
	case "datagrams", "passed", "worked":
		fixed, kind, bytes = true, unix.SOCK_DGRAM, uringDatagramBytes
	}
	runtime.LockOSThread() // a ring without a descriptor belongs to its thread
	var p uringParams
	if polled {
		p.Flags, p.SQThreadIdle = uringSetupSQPoll, uringIdle
	}
	ring, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uringDepth, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		fmt.Println("uring", errno)
		return nil
	}
	take, says := dial, "uring ready"
	if passed {
		take, says = takePassed, "uring has"
	}
	fd, err := take(to, kind)
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
	enter := uintptr(uringEnterGet)
	if fixed {
		if err := uringRegister(ring, uringRegisterFiles, unsafe.Pointer(&[]int32{int32(fd)}[0])); err != nil {
			return err
		}
		if err := unix.Close(fd); err != nil {
			return fmt.Errorf("close the socket: %w", err)
		}
		fd = 0
	}
	if how == "unseen" {
		update := struct {
			offset, _ uint32
			data      uint64
		}{offset: math.MaxUint32, data: uint64(ring)}
		if err := uringRegister(ring, uringRegisterRings, unsafe.Pointer(&update)); err != nil {
			return err
		}
		if err := unix.Close(int(ring)); err != nil {
			return fmt.Errorf("close the ring: %w", err)
		}
		ring, enter = uintptr(update.offset), enter|uringEnterRegistered
	}
	data, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("map what is sent: %w", err)
	}
	fmt.Println(says)
	awaitWord()
	for {
		// It submits one send at a time: they must not overtake each other.
		tail := atomic.LoadUint32(word(sq, p.SQ.Tail))
		slot := tail & *word(sq, p.SQ.RingMask)
		e := (*uringSubmission)(unsafe.Pointer(&entries[slot*sizeofSubmission]))
		*e = uringSubmission{Opcode: uringOpSend, FD: int32(fd), Addr: uint64(uintptr(unsafe.Pointer(&data[0]))), Len: bytes}
		if !polled && how != "passed" {
			e.Flags = uringAsync
		}
		if fixed {
			e.Flags |= uringFixedFile
			e.OpFlags = unix.MSG_WAITALL
		}
		*word(sq, p.SQ.Array+slot*sizeofUint32) = slot
		atomic.StoreUint32(word(sq, p.SQ.Tail), tail+1)

		submit, flags := uintptr(1), enter
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
			n := int32(*word(cq, at+8))
			refused := kind == unix.SOCK_DGRAM && (n == -int32(unix.ECONNREFUSED) || n == -int32(unix.EPERM))
			if n < 0 && !refused {
				return fmt.Errorf("send by io_uring: %w", unix.Errno(-n))
			}
			atomic.StoreUint32(word(cq, p.CQ.Head), head+1)
		}
	}
}
