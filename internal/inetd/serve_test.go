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
)

// serve starts a server with that many sessions whose programs print their arguments.
func serve(t *testing.T, most int) *Server {
	t.Helper()
	s := &Server{
		Log: slog.New(slog.DiscardHandler), Most: most,
		Session: func(service Service) *exec.Cmd { return exec.Command("/bin/echo", service.Args[1:]...) },
	}
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// service is one whose program prints a word, at a free port.
func service(t *testing.T, word string) Service {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return Service{Name: word, Network: "tcp", Address: l.Addr().String(), Server: "/bin/echo", Args: []string{"echo", word}}
}

// ask is what a service says within a second.
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

// Services that wait for connections take no place of sessions.
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

// The first connection after the file was read again is served by what it says now.
func TestServedByTheNewLine(t *testing.T) {
	s := serve(t, 0)
	x := service(t, "before")
	require.NoError(t, s.Serve(context.Background(), []Service{x}))
	require.Equal(t, "before\n", ask(t, x))
	x.Args = []string{"echo", "after"}
	require.NoError(t, s.Serve(context.Background(), []Service{x}))
	require.Equal(t, "after\n", ask(t, x))
}
