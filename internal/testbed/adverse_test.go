package testbed_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// tcpCounter returns one of a namespace's counters of TCP.
func tcpCounter(t *testing.T, n *testbed.NetNS, name string) (count uint64) {
	t.Helper()
	err := n.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/netstat")
		lines := strings.Split(string(text), "\n")
		if err != nil || len(lines) < 2 {
			return fmt.Errorf("read netstat: %w", err)
		}
		count, err = strconv.ParseUint(strings.Fields(lines[1])[slices.Index(strings.Fields(lines[0]), name)], 10, 64)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// Data over an adverse path arrive out of order, several times or with holes for ever, and over another port of the same
// namespace as sent.
func TestAdverse(t *testing.T) {
	testutil.RequireRoot(t)
	pair := testutil.MustPair(t)
	const first = 7000
	adverse, err := testbed.StartAdverse(pair.B, 3, 6000, first)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := adverse.Close(); err != nil {
			t.Error(err)
		}
		if links, err := pair.B.Netlink().LinkList(); err != nil || len(links) != 2 {
			t.Errorf("%d links (%v), want lo and %s", len(links), err, testbed.Device)
		}
	}()
	for _, c := range []struct {
		name    string
		kind    uint16
		address string
		seen    string // a counter of the client's TCP
		part    bool   // only a part of the data ever comes
	}{
		{"usual", testbed.AdversePorts, pair.B4.String(), "", false},
		{"holes", testbed.AdverseHoles, pair.B4.String(), "TCPOFOQueue", true},
		{"reorders", testbed.AdverseReorders, pair.B4.String(), "TCPOFOQueue", false},
		{"duplicates", testbed.AdverseDuplicates, pair.B4.String(), "TCPDSACKOldSent", false},
		{"reorders over IPv6", testbed.AdverseReorders, pair.B6.String(), "TCPOFOQueue", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := uint64(0)
			if c.seen != "" {
				before = tcpCounter(t, pair.A, c.seen)
			}
			disordered := tcpCounter(t, pair.A, "TCPOFOQueue")
			sent, got, answered := converse(t, pair, net.JoinHostPort(c.address, itoa(first+int(c.kind))), c.part)
			if c.part && got == sent || !c.part && got != sent || answered == 0 {
				t.Errorf("%d of %d bytes came, and %d went back", got, sent, answered)
			}
			if c.seen != "" && tcpCounter(t, pair.A, c.seen) == before {
				t.Errorf("%s did not grow", c.seen)
			}
			if c.seen == "" && tcpCounter(t, pair.A, "TCPOFOQueue") != disordered {
				t.Error("packets came out of order")
			}
			if c.kind < testbed.AdversePorts {
				left, came, err := adverse.Numbers(uint32(c.kind))
				if left == 0 || came == 0 || err != nil {
					t.Errorf("%d packets have left, %d have come (%v)", left, came, err)
				}
			}
		})
	}
}

// converse has a server in B send small segments to a client in A, which sends as well. It returns the bytes that the server
// has sent, those of them that have come, and those that the client's have.
func converse(t *testing.T, pair *testbed.Pair, address string, part bool) (sent, got, answered int64) {
	t.Helper()
	var listener net.Listener
	err := pair.B.Do(func() (err error) {
		listener, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	const segments, bytes = 400, 100
	served := make(chan int64, 1)
	go func() {
		c, err := listener.Accept()
		if err != nil {
			served <- 0
			return
		}
		defer c.Close()
		go func() {
			for range segments {
				_, _ = c.Write(make([]byte, bytes)) // the caller counts the bytes that came
				time.Sleep(time.Millisecond)
			}
		}()
		n, _ := io.Copy(io.Discard, c) // ends as the client closes
		served <- n
	}()
	var c net.Conn
	err = pair.A.Do(func() (err error) {
		c, err = net.Dial("tcp", address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	wait := 10 * time.Second
	if part {
		wait = 2 * time.Second
	}
	_ = c.SetDeadline(time.Now().Add(wait)) // an error shows in what has come
	go func() { _, _ = c.Write(make([]byte, 1<<20)) }()
	got, _ = io.CopyN(io.Discard, c, segments*bytes) // the caller counts the bytes that came
	_ = c.Close()
	return segments * bytes, got, <-served
}
