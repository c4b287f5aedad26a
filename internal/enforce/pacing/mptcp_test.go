package pacing

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/testutil"
)

// sendsEnv makes the test's program one that sends by a connection that it inherits.
const sendsEnv = "NETNICE_TEST_SENDS"

// sendInherited sends by descriptor 3 for each line that it reads.
func sendInherited() {
	file := os.NewFile(3, "connection")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		_, err := file.WriteString("x")
		fmt.Println("sent", err)
	}
	os.Exit(0)
}

// mptcp returns both ends of an MPTCP connection.
func mptcp(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP)
	if err != nil {
		t.Skipf("no MPTCP here: %v", err)
	}
	_ = unix.Close(fd)
	l, err := net.Listen("tcp", "127.0.0.1:0") // Go's listeners are MPTCP
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var d net.Dialer
	d.SetMultipathTCP(true)
	c, err := d.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	client, server = c.(*net.TCPConn), s.(*net.TCPConn)
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	if there, err := client.MultipathTCP(); err != nil || !there {
		t.Fatalf("MPTCP is %v: %v", there, err)
	}
	return client, server
}

// A process sends by an MPTCP connection that another process has made and still has open. The connection and its
// subflows then belong to the sender.
func TestMPTCPFollowsSender(t *testing.T) {
	testutil.RequireRoot(t)
	g := newCgroupTree(t)
	client, _ := mptcp(t)
	file, err := client.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), sendsEnv+"=1")
	cmd.ExtraFiles = []*os.File{file}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); _ = cmd.Wait() }()
	child, port := uint32(cmd.Process.Pid), client.LocalAddr().(*net.TCPAddr).Port
	g.set(tree(1, child))
	maker := func() {
		t.Helper()
		if _, err := client.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, there := g.of(port, child)[unix.IPPROTO_MPTCP]; there {
			t.Fatal("after its maker has sent, the connection is the child's")
		}
	}
	maker()
	said := bufio.NewReader(out)
	send := func() {
		t.Helper()
		if _, err := io.WriteString(in, "go\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := said.ReadString('\n'); err != nil || line != "sent <nil>\n" {
			t.Fatalf("the child says %q: %v", line, err)
		}
	}
	send()
	list := g.of(port, child)
	if _, there := list[unix.IPPROTO_MPTCP]; !there {
		t.Fatalf("the connection is not the sender's: %+v", list)
	}
	if err := g.k.Maintain(); err != nil { // an event makes the daemon do that
		t.Fatal(err)
	}
	subflow, there := g.of(port, child)[unix.IPPROTO_TCP]
	if !there || subflow.State.Flags&bpf.SocketArmed == 0 {
		t.Fatalf("its subflow is not armed for the sender: %+v", subflow)
	}
	maker()
	send()
	if _, there := g.of(port, child)[unix.IPPROTO_MPTCP]; !there {
		t.Error("the child has sent again, and the connection is not its own")
	}
}

// of returns, by protocol, the sockets of a process that have that local port and are limited by node 1.
func (g *cgroupTree) of(port int, pid uint32) map[uint32]bpf.SocketRecord {
	g.t.Helper()
	list, err := g.k.obj.ListSockets()
	if err != nil {
		g.t.Fatal(err)
	}
	found := map[uint32]bpf.SocketRecord{}
	for _, r := range list {
		if int(r.LocalPort) == port && r.State.Tgid == pid && r.State.Path[0].Node == 1 {
			found[r.Protocol] = r
		}
	}
	return found
}
