package scenario

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testutil/sockopts"
)

// rulesInTable makes the value of IPT_SO_SET_REPLACE some 150 KB long.
const rulesInTable = 500

// TestGuestOptions runs in the guest. The kernel answers other software's options as without netnice. This program
// and a limited one set tables of iptables-legacy and read them back completely.
func TestGuestOptions(t *testing.T) {
	if os.Getenv("NETNICE_VM") != "1" {
		return
	}
	require.NoError(t, os.WriteFile("/proc/sys/net/ipv4/igmp_max_msf", []byte("2000"), 0))
	without, err := sockopts.Answers()
	require.NoError(t, err)
	large := 0
	for _, a := range without {
		t.Log(a)
		if a.Bytes > os.Getpagesize() && a.Set == "ok" {
			large++
		}
	}
	require.GreaterOrEqual(t, large, 4)
	table(t, 1)

	start(t, exec.Command("netnice", "daemon"))
	answers(t)
	with, err := sockopts.Answers()
	require.NoError(t, err)
	require.Equal(t, without, with, "netnice is up")
	table(t, 2)
	ownRate(t)
	netnice(t, "set", "--host", "--up", "10MB/s", "--down", "10MB/s")
	with, err = sockopts.Answers()
	require.NoError(t, err)
	require.Equal(t, without, with, "the host is limited")
	table(t, 3, "netnice", "run", "--up", "1MB/s", "--")
	netnice(t, "down")
	table(t, 4)
}

// ownRate checks that netnice why knows the rate that this program has set on a socket of its own.
func ownRate(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	}()
	c, err := net.Dial("tcp4", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	const sendRate = 7001 // TCP_SNDRATE of include/netnice.h
	require.NoError(t, raw.Control(func(fd uintptr) {
		require.NoError(t, unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, sendRate, 500_000))
	}))
	go func() {
		for {
			if _, err := c.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	}()
	time.Sleep(time.Second)
	out, err := exec.Command("netnice", "why", fmt.Sprint(os.Getpid())).CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err)
	require.Contains(t, string(out), "socket:TCP_SNDRATE up binds")
}

// table sets a large table of iptables-legacy, reads it back and checks its effect.
func table(t *testing.T, try int, under ...string) {
	t.Helper()
	port := 7000 + try
	var text strings.Builder
	text.WriteString("*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n")
	for i := range rulesInTable {
		fmt.Fprintf(&text, "-A INPUT -s 10.%d.%d.%d/32 -p tcp -m tcp --dport %d -j DROP\n", try, i/250, i%250, port)
	}
	fmt.Fprintf(&text, "-A INPUT -d 127.0.0.1/32 -p udp -m udp --dport %d -j DROP\nCOMMIT\n", port)
	run := func(in string, args ...string) string {
		args = append(append([]string{}, under...), args...)
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdin = strings.NewReader(in)
		var wrong bytes.Buffer
		cmd.Stderr = &wrong
		out, err := cmd.Output()
		require.NoError(t, err, "try %d: %v: %s", try, args, wrong.String())
		return string(out)
	}
	run(text.String(), "iptables-legacy-restore")
	saved := run("", "iptables-legacy-save", "-t", "filter")
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, "-A") {
			require.Contains(t, saved, line, "try %d", try)
		}
	}
	require.Equal(t, rulesInTable+1, strings.Count(saved, "\n-A "), "try %d", try)
	got := func(port int) bool {
		l, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		require.NoError(t, err)
		defer l.Close()
		c, err := net.DialUDP("udp", nil, l.LocalAddr().(*net.UDPAddr))
		require.NoError(t, err)
		defer c.Close()
		_, _ = c.Write([]byte("x")) // refused where the table drops it
		require.NoError(t, l.SetReadDeadline(time.Now().Add(300*time.Millisecond)))
		_, err = l.Read(make([]byte, 10))
		return err == nil
	}
	require.False(t, got(port), "try %d: the last rule holds", try)
	require.True(t, got(port+100), "try %d: for its port only", try)
	run("", "iptables-legacy", "-A", "INPUT", "-p", "udp", "--dport", fmt.Sprint(port+100), "-j", "DROP")
	require.False(t, got(port+100), "try %d: a rule that is added", try)
}
