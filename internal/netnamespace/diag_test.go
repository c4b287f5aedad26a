package netnamespace

import (
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Each socket is found by the cookie and the inode that its own program sees, with its addresses.
func TestInetSockets(t *testing.T) {
	var plain net.ListenConfig
	plain.SetMultipathTCP(false)
	listener, err := plain.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp4", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	datagrams, err := net.ListenUDP("udp6", &net.UDPAddr{IP: net.IPv6loopback})
	if err != nil {
		t.Skip("no IPv6 here: ", err)
	}
	defer datagrams.Close()

	found := make(map[uint64]InetSocket)
	if err := InetSockets("/proc/self", func(s InetSocket) { found[s.Cookie] = s }); err != nil {
		t.Fatal(err)
	}
	want := func(of syscall.Conn, protocol uint16, family uint8, local, remote net.Addr) {
		t.Helper()
		cookie, inode := identify(t, of)
		s, ok := found[cookie]
		if !ok {
			t.Fatalf("%s is not found among %d sockets", local, len(found))
		}
		if s.Inode != inode || s.Protocol != protocol || s.Family != family || s.Local.String() != local.String() {
			t.Errorf("got %+v, want inode %d, protocol %d, family %d, %s", s, inode, protocol, family, local)
		}
		if remote != nil && s.Remote != netip.MustParseAddrPort(remote.String()) {
			t.Errorf("got %s, want %s", s.Remote, remote)
		}
	}
	want(listener.(*net.TCPListener), unix.IPPROTO_TCP, unix.AF_INET, listener.Addr(), nil)
	want(client.(*net.TCPConn), unix.IPPROTO_TCP, unix.AF_INET, client.LocalAddr(), client.RemoteAddr())
	want(datagrams, unix.IPPROTO_UDP, unix.AF_INET6, datagrams.LocalAddr(), nil)
}

// A socket of MPTCP has a cookie of its own. Its TCP socket has the same inode and address.
func TestInetSocketsOfMPTCP(t *testing.T) {
	var multipath net.ListenConfig
	multipath.SetMultipathTCP(true)
	listener, err := multipath.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	cookie, inode := identify(t, listener.(*net.TCPListener))
	protocols := make(map[uint16]bool)
	err = InetSockets("/proc/self", func(s InetSocket) {
		if s.Inode != inode {
			return
		}
		protocols[s.Protocol] = true
		if s.Local.String() != listener.Addr().String() || (s.Cookie == cookie) != (s.Protocol == unix.IPPROTO_MPTCP) {
			t.Errorf("%+v of %s, whose cookie is %d", s, listener.Addr(), cookie)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if !protocols[unix.IPPROTO_TCP] {
		t.Error("there is no TCP socket")
	}
	if !protocols[unix.IPPROTO_MPTCP] {
		t.Skip("this kernel has no MPTCP, or does not list its sockets")
	}
}

// A process that has ended has no sockets.
func TestInetSocketsOfNobody(t *testing.T) {
	err := InetSockets(t.TempDir(), func(s InetSocket) { t.Errorf("%+v", s) })
	if err != nil {
		t.Error(err)
	}
}

// identify returns the cookie of a socket of this process, and its inode.
func identify(t *testing.T, of syscall.Conn) (cookie, inode uint64) {
	t.Helper()
	raw, err := of.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var st unix.Stat_t
		failed = unix.Fstat(int(fd), &st)
		inode = st.Ino
		if failed == nil {
			cookie, failed = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_COOKIE)
		}
	})
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	return cookie, inode
}
