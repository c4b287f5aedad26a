package pacing

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testutil"
)

const (
	sndRate     = 7001 // TCP_SNDRATE
	rcvRate     = 7002 // TCP_RCVRATE
	limitOption = 7005 // NETNICE_LIMIT
)

// optionPair is two sockets of one kind, for which the test makes the same calls. One is in the cgroup that the
// programs are on, and one is outside.
type optionPair struct {
	here, out int
	used      int
	rate      uint64 // value of TCP_SNDRATE that is due by the rules of netnice.h
}

// options makes calls of setsockopt and getsockopt.
type optionStage struct {
	outside []outsider // sockets made before the cgroup was entered
	pairs   [4]optionPair
	victim  int
	buffer  []byte
}

// outsider is a socket that the programs do not see.
type outsider struct{ kind, fd int }

const (
	pairLife   = 5000 // calls until a pair is replaced
	victimRate = 1_000_000
)

func makeSocket(kind int) (int, error) {
	switch kind {
	case 0:
		return unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	case 1:
		return unix.Socket(unix.AF_INET6, unix.SOCK_STREAM, 0)
	case 2:
		return unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	}
	return unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
}

// option calls setsockopt or getsockopt as a program may, with any length.
func option(get bool, fd, level, name int, buffer []byte, length int32) (int32, unix.Errno) {
	if get {
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name),
			uintptr(unsafe.Pointer(&buffer[0])), uintptr(unsafe.Pointer(&length)), 0)
		return length, errno
	}
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name),
		uintptr(unsafe.Pointer(&buffer[0])), uintptr(length), 0)
	return 0, errno
}

// The kernel offers no test run (BPF_PROG_RUN) for such programs, so these are real calls of a user without
// privileges. They have any level, name, length and value. The rate follows them as netnice.h says. The kernel
// answers any other option as without netnice. Another socket keeps its values.
func FuzzOption(f *testing.F) {
	testutil.RequireRoot(f)
	s := newOptionStage(f)
	for _, seed := range []struct {
		level, name int32
		length      int32
		value       []byte
	}{
		{unix.IPPROTO_TCP, sndRate, 4, []byte{1, 0, 0, 0}},
		{unix.IPPROTO_TCP, sndRate, 8, []byte{1, 0, 0, 0, 0, 0, 0, 0x80}},
		{unix.IPPROTO_TCP, sndRate, 8, []byte{0, 0, 0, 0, 1, 0, 0, 0}},
		{unix.IPPROTO_TCP, sndRate, 4, []byte{0xff, 0xff, 0xff, 0xff}},
		{unix.IPPROTO_TCP, sndRate, 0, nil},
		{unix.IPPROTO_TCP, sndRate, -1, nil},
		{unix.IPPROTO_TCP, sndRate, 4097, nil},
		{unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, 4, []byte{0, 0, 1, 0}},
		{unix.SOL_SOCKET, unix.SO_RCVBUF, 4, []byte{0, 0, 1, 0}},
		{unix.IPPROTO_TCP, unix.TCP_CONGESTION, 5, []byte("cubic")},
		{unix.IPPROTO_IP, unix.IP_TOS, 1, []byte{8}},
		{unix.IPPROTO_UDP, sndRate, 4, []byte{1, 0, 0, 0}},
	} {
		for kind := range uint8(len(s.pairs)) {
			f.Add(kind, false, seed.level, seed.name, seed.length, seed.value)
			f.Add(kind, true, seed.level, seed.name, seed.length, seed.value)
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, get bool, level, name, length int32, value []byte) {
		s.call(t, int(kind)%len(s.pairs), get, int(level), int(name), max(-8, min(length, 1<<16)), value)
	})
}

func (s *optionStage) call(t *testing.T, kind int, get bool, level, name int, length int32, value []byte) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p := s.pair(t, kind)
	// This thread alone loses its privileges for the calls.
	effective := func(uid uintptr) {
		const same = ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, uid, same); errno != 0 {
			t.Fatalf("become uid %d: %v", uid, errno)
		}
	}
	effective(65534)
	defer effective(0)
	run := func(fd int) (int32, unix.Errno) {
		clear(s.buffer[:1<<12])
		copy(s.buffer, value)
		return option(get, fd, level, name, s.buffer, length)
	}
	p.used++
	switch {
	case level == unix.IPPROTO_TCP && name == sndRate && kind < 2:
		var want unix.Errno
		rate := p.rate
		copy(s.buffer, make([]byte, 8))
		copy(s.buffer, value)
		switch {
		case length > 4096:
			want = unix.EINVAL
		case get && length >= 4:
		case !get && length == 4 && binary.NativeEndian.Uint32(s.buffer) != 1<<32-1:
			rate = uint64(binary.NativeEndian.Uint32(s.buffer))
		case !get && length == 8 && binary.NativeEndian.Uint64(s.buffer)>>63 == 0:
			rate = binary.NativeEndian.Uint64(s.buffer)
		default:
			want = unix.EINVAL
		}
		some := length <= 0 || length > 4096 // kernels differ in the reason
		if _, errno := run(p.here); errno != want && (!some || errno == 0) {
			t.Fatalf("get %t, %d bytes of % x: %v, want %v", get, length, value, errno, want)
		}
		p.rate = rate
		if _, errno := option(true, p.here, unix.IPPROTO_TCP, sndRate, s.buffer, 8); errno != 0 || binary.NativeEndian.Uint64(s.buffer) != rate {
			t.Fatalf("after %d bytes of % x the rate is %d, %v, want %d", length, value, binary.NativeEndian.Uint64(s.buffer), errno, rate)
		}
	case name == rcvRate || name == limitOption || name == sndRate && level == unix.IPPROTO_UDP:
		// These options are netnice's, too. Other tests check their answers; this one checks that nothing breaks.
		if _, errno := run(p.here); length > 8 && length != 24 && !get && errno == 0 {
			t.Fatalf("option %d takes %d bytes", name, length)
		}
	default:
		gotLength, got := run(p.here)
		wantLength, want := run(p.out)
		if length <= 0 && got != 0 && want != 0 {
			return // kernels before 6.2 or so check the arguments before they look for a handler of the option
		}
		if got != want || gotLength != wantLength && (level != unix.IPPROTO_TCP || name != unix.TCP_CC_INFO) {
			t.Fatalf("get %t, kind %d, level %d, option %d, %d bytes of % x: %v and %d bytes, without netnice %v and %d",
				get, kind, level, name, length, value, got, gotLength, want, wantLength)
		}
	}
	if _, errno := option(true, s.victim, unix.IPPROTO_TCP, sndRate, s.buffer, 8); errno != 0 || binary.NativeEndian.Uint64(s.buffer) != victimRate {
		t.Fatalf("another socket has the rate %d, %v", binary.NativeEndian.Uint64(s.buffer), errno)
	}
}

// pair returns two sockets that had the same calls.
func (s *optionStage) pair(t *testing.T, kind int) *optionPair {
	p := &s.pairs[kind]
	if p.here != 0 && p.used < pairLife {
		return p
	}
	at := slices.IndexFunc(s.outside, func(o outsider) bool { return o.kind == kind })
	if at < 0 {
		return p // the last pairs are used to the end
	}
	if p.here != 0 {
		_ = unix.Close(p.here)
		_ = unix.Close(p.out)
	}
	here, err := makeSocket(kind)
	if err != nil {
		t.Fatal(err)
	}
	*p = optionPair{here: here, out: s.outside[at].fd}
	s.outside = slices.Delete(s.outside, at, at+1)
	return p
}

func newOptionStage(f *testing.F) *optionStage {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		f.Fatal(err)
	}
	_, home, _ := strings.Cut(string(text), "0::")
	home, _, _ = strings.Cut(home, "\n")
	name := testutil.RunName() + "fuzz-" + strconv.Itoa(os.Getpid())
	dir := filepath.Join(cgroupRoot(), name)
	enter := func(dir string) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			f.Fatal(err)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = os.Remove(dir) })
	s := &optionStage{buffer: make([]byte, 1<<16+8)}
	var most unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &most); err != nil {
		f.Fatal(err)
	}
	for i := range int(min(most.Cur/2, 4000)) {
		fd, err := makeSocket(i % len(s.pairs))
		if err != nil {
			f.Fatal(err)
		}
		s.outside = append(s.outside, outsider{i % len(s.pairs), fd})
	}
	k, err := Open(Options{PinDir: "/sys/fs/bpf/" + name, CgroupRoot: dir, Beside: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		enter(filepath.Join(cgroupRoot(), home))
		if err := k.Down(); err != nil {
			f.Error(err)
		}
	})
	if _, err := k.obj.NnSetsockopt.Run(&ebpf.RunOptions{Data: make([]byte, 64)}); !errors.Is(err, ebpf.ErrNotSupported) {
		f.Logf("BPF_PROG_RUN: %v", err)
	}
	enter(dir)
	if s.victim, err = makeSocket(0); err != nil {
		f.Fatal(err)
	}
	binary.NativeEndian.PutUint64(s.buffer, victimRate)
	if _, errno := option(false, s.victim, unix.IPPROTO_TCP, sndRate, s.buffer, 8); errno != 0 {
		f.Fatalf("set a rate: %v", errno)
	}
	return s
}
