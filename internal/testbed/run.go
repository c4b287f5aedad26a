package testbed

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/netnice/netnice/internal/testbed/relay"
)

// trafficName is the argv[0] that tells a program to run as a traffic process.
const trafficName = "netnice-traffic"

// The roles of a traffic process, argv[1].
const (
	roleSender   = "sender"
	roleReceiver = "receiver"
)

// MaybeRunTraffic turns the process into a sender, a receiver or a relay if StartSender, StartReceiver or
// NewDistantPair started it as one, and then never returns. Otherwise it does nothing. A program must call it before
// it parses flags.
func MaybeRunTraffic() {
	relay.MaybeRun()
	if len(os.Args) != 2 || os.Args[0] != trafficName {
		return
	}
	w := newWire(os.Stdin, os.Stdout)
	err := runTraffic(os.Args[1], w)
	if err != nil && !errors.Is(err, io.EOF) { // EOF: the starting process is gone
		_ = w.write(report{Saw: sawError, Error: err.Error()}) // if it fails, no process reads it
		os.Exit(1)
	}
	os.Exit(0)
}

func runTraffic(role string, w *wire) error {
	// The name is for readers of ps; any other would do.
	_ = os.WriteFile("/proc/self/comm", []byte("nn-"+role), 0)
	first, err := w.configure()
	if err != nil {
		return err
	}
	switch {
	case role == roleSender && first.Sender != nil:
		return runSender(w, *first.Sender)
	case role == roleReceiver && first.Receiver != nil:
		return runReceiver(w, *first.Receiver)
	}
	return fmt.Errorf("role %q without its configuration", role)
}
