package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// guideProgram is the environment variable that tells this program to run as one of the programs that a page of the
// guide limits. Its value is the verb of the page.
const guideProgram = "NETNICE_GUIDE_PROGRAM"

// The host that the programs of the guide talk to, this machine, and their network. Pages name them by the addresses on
// the left.
const (
	guidePageHost, guideHost = "192.0.2.7", "10.98.0.2"
	guidePageSelf, guideSelf = "192.0.2.10", "10.98.0.1"
	guidePageNet, guideNet   = "192.0.2.0/24", "10.98.0.0/24"
)

// Ports of that host: the first reads, the second sends, the third reads datagrams.
const sinkPort, sourcePort, callPort = "873", "443", "5004"

// maybeRunGuideProgram turns the process into a program of the guide if it was started as one.
func maybeRunGuideProgram() {
	verb := os.Getenv(guideProgram)
	if verb == "" {
		return
	}
	if err := runGuideProgram(verb); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runGuideProgram(verb string) error {
	switch verb {
	case "serves":
		return serveGuide()
	case "works":
		fmt.Println("ready")
		for begin := time.Now(); time.Since(begin) < time.Hour; { //nolint:revive // it takes a processor
		}
		return nil
	case "waits":
		fmt.Println("ready")
		awaitWord()
		return nil
	case "calls":
		c, err := net.Dial("udp", net.JoinHostPort(guideHost, callPort))
		if err != nil {
			return err
		}
		fmt.Println("ready")
		for range time.Tick(20 * time.Millisecond) { // as voice is sent
			if _, err := c.Write(make([]byte, 160)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return err
			}
		}
		return nil
	case "sends", "receives":
		port := map[string]string{"sends": sinkPort, "receives": sourcePort}[verb]
		c, err := net.Dial("tcp", net.JoinHostPort(guideHost, port))
		if err != nil {
			return err
		}
		fmt.Println("ready")
		if verb == "sends" {
			return guideFlow(c)
		}
		_, err = io.Copy(io.Discard, c)
		return err
	}
	return fmt.Errorf("no program %s", verb)
}

// guideFlow sends at up to 20 MB/s, which leaves the processors to other tests.
func guideFlow(c net.Conn) error {
	data := make([]byte, 1<<16)
	for due := time.Now(); ; {
		if _, err := c.Write(data); err != nil {
			return err
		}
		if now := time.Now(); due.Before(now.Add(-10 * time.Millisecond)) {
			due = now
		}
		due = due.Add(time.Duration(len(data)) * time.Second / 20e6)
		time.Sleep(time.Until(due))
	}
}

// serveGuide is the host that the programs talk to.
func serveGuide() error {
	ended := make(chan error)
	serve := func(port string, serve func(net.Conn) error) error {
		l, err := net.Listen("tcp", net.JoinHostPort(guideHost, port))
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					ended <- err
					return
				}
				go func() {
					_ = serve(c) // the client may end
					_ = c.Close()
				}()
			}
		}()
		return nil
	}
	sink := func(c net.Conn) error { _, err := io.Copy(io.Discard, c); return err }
	calls, err := net.ListenPacket("udp", net.JoinHostPort(guideHost, callPort))
	if err != nil {
		return err
	}
	go func() {
		for buffer := make([]byte, 2048); ; {
			if _, _, err := calls.ReadFrom(buffer); err != nil {
				ended <- err
				return
			}
		}
	}()
	if err := errors.Join(serve(sinkPort, sink), serve(sourcePort, guideFlow)); err != nil {
		return err
	}
	fmt.Println("ready")
	return <-ended
}
