package inetd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// serve starts a server with a bound on its sessions. Their programs print their arguments.
func serve(t *testing.T, most int) *Server {
	t.Helper()
	s := &Server{
		Log: slog.New(slog.DiscardHandler), Most: most,
		Session: func(service Service) *exec.Cmd { return exec.Command("/bin/echo", service.Args[1:]...) },
	}
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// service returns a service at a free port, with a program that prints a word.
func service(t *testing.T, word string) Service {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return Service{Name: word, Network: "tcp", Address: l.Addr().String(), Server: "/bin/echo", Args: []string{"echo", word}}
}

// ask returns the text that a service sends within a second.
func ask(t *testing.T, s Service) string {
	t.Helper()
	conn, err := net.Dial(s.Network, s.Address)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
	text, err := io.ReadAll(conn)
	require.NoError(t, err)
	return string(text)
}

// Services that wait for connections do not count as sessions.
func TestMoreServicesThanSessions(t *testing.T) {
	s := serve(t, 1)
	var services []Service
	for i := range 4 {
		services = append(services, service(t, fmt.Sprint("word", i)))
	}
	require.NoError(t, s.Serve(context.Background(), services))
	for range 2 {
		for _, x := range services {
			require.Equal(t, x.Name+"\n", ask(t, x))
		}
	}
}

// A service that waits goes on after its socket could not be handed on, for want of file descriptors.
func TestServedAfterDescriptorsRanOut(t *testing.T) {
	started := make(chan struct{}, 1)
	s := serve(t, 0)
	s.Session = func(Service) *exec.Cmd {
		select {
		case started <- struct{}{}:
		default:
		}
		return exec.Command("/bin/true")
	}
	x := service(t, "waits")
	x.Wait = true
	require.NoError(t, s.Serve(context.Background(), []Service{x}))
	address, err := net.ResolveTCPAddr(x.Network, x.Address)
	require.NoError(t, err)
	client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(client)
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: before.Max}))
	err = unix.Connect(client, &unix.SockaddrInet4{Port: address.Port, Addr: [4]byte(address.IP.To4())})
	time.Sleep(300 * time.Millisecond) // the server looks at the socket each 100 ms
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
	require.NoError(t, err)
	require.Empty(t, started)
	select {
	case <-started:
	case <-time.After(5 * time.Second):
		t.Fatal("the service is dead")
	}
}

// The first connection after the file was read again gets the service of the new file.
func TestServedByTheNewLine(t *testing.T) {
	s := serve(t, 0)
	x := service(t, "before")
	require.NoError(t, s.Serve(context.Background(), []Service{x}))
	require.Equal(t, "before\n", ask(t, x))
	x.Args = []string{"echo", "after"}
	require.NoError(t, s.Serve(context.Background(), []Service{x}))
	require.Equal(t, "after\n", ask(t, x))
}

// Each client may have a number of sessions at a time. The server refuses further ones, accepts those of other clients,
// and accepts one more when a session has ended.
func TestClients(t *testing.T) {
	s := serve(t, 0)
	s.Session = func(Service) *exec.Cmd { return exec.Command("/bin/cat") }
	x := service(t, "word")
	x.ClientChildren = 2
	require.NoError(t, s.Serve(context.Background(), []Service{x}))
	open := func(from byte) (conn net.Conn, served bool) {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}
		conn, err := d.Dial(x.Network, x.Address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
		_, _ = conn.Write([]byte("a")) // a refused connection may be closed already
		n, _ := conn.Read(make([]byte, 1))
		return conn, n == 1
	}
	first, served := open(1)
	require.True(t, served)
	for _, c := range []struct {
		from   byte
		served bool
	}{{1, true}, {1, false}, {2, true}, {2, true}, {2, false}} {
		_, served := open(c.from)
		require.Equal(t, c.served, served, "%+v", c)
	}
	require.NoError(t, first.Close())
	require.Eventually(t, func() bool { _, served := open(1); return served }, 10*time.Second, 50*time.Millisecond)
}

func TestClientsAreCounted(t *testing.T) {
	var c clients
	now := time.Now()
	who := clientOf(&net.TCPAddr{IP: net.ParseIP("2001:db8::1")})
	require.Equal(t, who, clientOf(&net.TCPAddr{IP: net.ParseIP("2001:db8::2")}), "one site")
	require.NotEqual(t, who, clientOf(&net.TCPAddr{IP: net.ParseIP("2001:db8:0:1::1")}))
	require.Equal(t, clientOf(&net.TCPAddr{IP: net.ParseIP("::ffff:192.0.2.1")}), clientOf(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}))
	for i := range 4 {
		require.Equal(t, i < 3, c.enter(who, 3, 0, now))
	}
	now = now.Add(time.Minute)
	require.True(t, c.enter(who, 3, 0, now), "another minute")
	for range 4 {
		c.leave(who)
	}
	require.True(t, c.enter(clientOf(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}), 3, 0, now.Add(time.Minute)))
	require.Len(t, c.of, 1, "who has gone is forgotten")
}
