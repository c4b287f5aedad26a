package e2e

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ring needs these parts of io_uring's interface; see io_uring_setup(2).
const (
	uringSetupSQPoll = 1 << 1
	uringEnterGet    = 1 << 0
	uringEnterWakeup = 1 << 1
	uringNeedWakeup  = 1 << 0
	uringOpSend      = 26
	uringOpReceive   = 27
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

// ring is a ring of io_uring's that executes one request at a time.
type ring struct {
	fd      uintptr // of the ring, or its number in the thread's table of rings
	params  uringParams
	enter   uintptr // flags of io_uring_enter
	polled  bool    // a kernel thread takes the requests
	sq, cq  []byte
	entries []byte
}

// newRing makes a ring. If the kernel refuses, it returns that error number.
func newRing(polled bool) (r *ring, refused unix.Errno, err error) {
	r = &ring{polled: polled, enter: uringEnterGet}
	p := &r.params
	if polled {
		p.Flags, p.SQThreadIdle = uringSetupSQPoll, uringIdle
	}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uringDepth, uintptr(unsafe.Pointer(p)), 0)
	if errno != 0 {
		return nil, errno, nil
	}
	r.fd = fd
	const access, shared = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED
	if r.sq, err = unix.Mmap(int(fd), uringSubmissions, int(p.SQ.Array+p.SQEntries*sizeofUint32), access, shared); err != nil {
		return nil, 0, fmt.Errorf("map the submission ring: %w", err)
	}
	if r.cq, err = unix.Mmap(int(fd), uringCompletions, int(p.CQ.Cqes+p.CQEntries*sizeofCompletion), access, shared); err != nil {
		return nil, 0, fmt.Errorf("map the completion ring: %w", err)
	}
	if r.entries, err = unix.Mmap(int(fd), uringEntries, int(p.SQEntries*sizeofSubmission), access, shared); err != nil {
		return nil, 0, fmt.Errorf("map the submissions: %w", err)
	}
	return r, 0, nil
}

// take registers a socket as the ring's file 0, and closes its descriptor.
func (r *ring) take(fd int) error {
	if err := uringRegister(r.fd, uringRegisterFiles, unsafe.Pointer(&[]int32{int32(fd)}[0])); err != nil {
		return err
	}
	if err := unix.Close(fd); err != nil {
		return fmt.Errorf("close the socket: %w", err)
	}
	return nil
}

// hide closes the descriptor of the ring, which belongs to its thread from then on.
func (r *ring) hide() error {
	update := struct {
		offset, _ uint32
		data      uint64
	}{offset: math.MaxUint32, data: uint64(r.fd)}
	if err := uringRegister(r.fd, uringRegisterRings, unsafe.Pointer(&update)); err != nil {
		return err
	}
	if err := unix.Close(int(r.fd)); err != nil {
		return fmt.Errorf("close the ring: %w", err)
	}
	r.fd, r.enter = uintptr(update.offset), r.enter|uringEnterRegistered
	return nil
}

func uringWord(ring []byte, offset uint32) *uint32 {
	return (*uint32)(unsafe.Pointer(&ring[offset]))
}

// execute submits a request, waits for its completion, and returns its result.
func (r *ring) execute(s uringSubmission) (n int32, err error) {
	p := &r.params
	tail := atomic.LoadUint32(uringWord(r.sq, p.SQ.Tail))
	slot := tail & *uringWord(r.sq, p.SQ.RingMask)
	*(*uringSubmission)(unsafe.Pointer(&r.entries[slot*sizeofSubmission])) = s
	*uringWord(r.sq, p.SQ.Array+slot*sizeofUint32) = slot
	atomic.StoreUint32(uringWord(r.sq, p.SQ.Tail), tail+1)

	submit := uintptr(1)
	for {
		flags := r.enter
		if r.polled {
			submit = 0
			if atomic.LoadUint32(uringWord(r.sq, p.SQ.Flags))&uringNeedWakeup != 0 {
				flags |= uringEnterWakeup
			}
		}
		took, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, r.fd, submit, 1, flags, 0, 0)
		if errno != 0 && errno != unix.EINTR {
			return 0, fmt.Errorf("io_uring_enter: %w", errno)
		}
		if errno == 0 && took > 0 {
			submit = 0
		}
		head := atomic.LoadUint32(uringWord(r.cq, p.CQ.Head))
		if head == atomic.LoadUint32(uringWord(r.cq, p.CQ.Tail)) {
			continue // a signal has interrupted the call
		}
		at := p.CQ.Cqes + (head&*uringWord(r.cq, p.CQ.RingMask))*sizeofCompletion
		n = int32(*uringWord(r.cq, at+8))
		atomic.StoreUint32(uringWord(r.cq, p.CQ.Head), head+1)
		return n, nil
	}
}

// uringBuffer returns memory for a request.
func uringBuffer(bytes uint32, access int) ([]byte, error) {
	data, err := unix.Mmap(-1, 0, int(bytes), access, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map the memory of a request: %w", err)
	}
	return data, nil
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
	passed, fixed, kind, bytes := how == "passed" || how == "worked", false, unix.SOCK_STREAM, uint32(uringBytes)
	switch how {
	case "fixed", "unseen":
		fixed, bytes = true, uringAllBytes
	case "datagrams", "passed", "worked":
		fixed, kind, bytes = true, unix.SOCK_DGRAM, uringDatagramBytes
	}
	runtime.LockOSThread() // a ring without a descriptor belongs to its thread
	r, refused, err := newRing(how == "sqpoll")
	if err != nil {
		return err
	}
	if refused != 0 {
		fmt.Println("uring", refused)
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
	s := uringSubmission{Opcode: uringOpSend, FD: int32(fd), Len: bytes}
	if how != "sqpoll" && how != "passed" {
		s.Flags = uringAsync
	}
	if fixed {
		if err := r.take(fd); err != nil {
			return err
		}
		s.FD, s.Flags, s.OpFlags = 0, s.Flags|uringFixedFile, unix.MSG_WAITALL
	}
	if how == "unseen" {
		if err := r.hide(); err != nil {
			return err
		}
	}
	data, err := uringBuffer(bytes, unix.PROT_READ)
	if err != nil {
		return err
	}
	s.Addr = uint64(uintptr(unsafe.Pointer(&data[0])))
	fmt.Println(says)
	awaitWord()
	for {
		n, err := r.execute(s)
		if err != nil {
			return err
		}
		refused := kind == unix.SOCK_DGRAM && (n == -int32(unix.ECONNREFUSED) || n == -int32(unix.EPERM))
		if n < 0 && !refused {
			return fmt.Errorf("send by io_uring: %w", unix.Errno(-n))
		}
	}
}

// receiveByURing says "uring ready" or the reason why it cannot, takes a socket on a port, which from then on only a
// ring has, says "uring has", and receives for ever. It answers each line with the payload and the number of requests
// that it has received. The values of how are words, with + between them:
//   - TCP or UDP;
//   - large: one request for a gigabyte, so that the program makes no call while it receives (TCP alone);
//   - worked: a kernel thread receives;
//   - unseen: the ring has no descriptor either.
func receiveByURing(port, how string) error {
	words := strings.Split(how, "+")
	has := func(word string) bool { return slices.Contains(words, word) }
	runtime.LockOSThread() // a ring without a descriptor belongs to its thread
	r, refused, err := newRing(false)
	if err != nil {
		return err
	}
	if refused != 0 {
		fmt.Println("uring", refused)
		return nil
	}
	fd, err := receivingSocket(port, has("UDP"))
	if err != nil {
		return err
	}
	if err := r.take(fd); err != nil {
		return err
	}
	if has("unseen") {
		if err := r.hide(); err != nil {
			return err
		}
	}
	s := uringSubmission{Opcode: uringOpReceive, Flags: uringFixedFile, Len: uringBytes}
	if has("worked") {
		s.Flags |= uringAsync
	}
	if has("large") {
		s.Len, s.OpFlags = uringAllBytes, unix.MSG_WAITALL
	}
	data, err := uringBuffer(s.Len, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return err
	}
	s.Addr = uint64(uintptr(unsafe.Pointer(&data[0])))
	fmt.Println("uring has")
	var got, count atomic.Int64
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			fmt.Println("got", got.Load(), count.Load())
		}
	}()
	for {
		n, err := r.execute(s)
		if err != nil {
			return err
		}
		if n <= 0 {
			return fmt.Errorf("receive by io_uring: %d", n)
		}
		got.Add(int64(n))
		count.Add(1)
	}
}

// receivingSocket says "uring ready" once others may send to a port, and returns the socket that receives there. For
// TCP that is the first connection, and its listener is closed.
func receivingSocket(port string, datagrams bool) (int, error) {
	n, err := strconv.Atoi(port)
	if err != nil {
		return -1, err
	}
	kind := unix.SOCK_STREAM
	if datagrams {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: n}); err != nil {
		return -1, fmt.Errorf("bind to port %d: %w", n, err)
	}
	if datagrams {
		fmt.Println("uring ready")
		return fd, nil
	}
	defer unix.Close(fd)
	if err := unix.Listen(fd, 1); err != nil {
		return -1, fmt.Errorf("listen: %w", err)
	}
	fmt.Println("uring ready")
	conn, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("accept: %w", err)
	}
	return conn, nil
}
