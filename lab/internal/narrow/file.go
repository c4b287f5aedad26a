package narrow

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/routed"
	"github.com/netnice/netnice/lab/internal/tftp"
)

// File is the result for a file.
type File struct {
	Bytes   int  `json:"bytes"`
	Arrived int  `json:"bytes_without_a_gap"`
	Whole   bool `json:"whole"`
}

// after says whether the file was complete after the measured time.
func (f File) after(seconds float64) string {
	if f.Whole {
		return fmt.Sprintf("the file of %d bytes was whole after %.1f s", f.Bytes, seconds)
	}
	return fmt.Sprintf("after %.1f s %d of the file's %d bytes had arrived without a gap", seconds, f.Arrived, f.Bytes)
}

// options returns the options of TFTP's ends. The time-out is longer than a packet waits in a full bottleneck.
func (t Transfer) options() tftp.Options {
	return tftp.Options{WindowBlocks: t.WindowBlocks, Timeout: 5 * time.Second}
}

// received is the result of a file's receiver.
type received struct {
	tftp.Received
	at  testbed.Instant
	err error
}

// file sends a file by TFTP, until it is complete or that time has passed.
func (f *Figures) file(ctx context.Context, b *bed.Bed, s *routed.Site, tcp *testbed.Receiver, t Transfer, over time.Duration) error {
	if err := testbed.Sleep(ctx, pause(b)); err != nil {
		return err
	}
	dropped, err := s.Dropped()
	if err != nil {
		return err
	}
	sink, source, err := fileSockets(s)
	if err != nil {
		return err
	}
	defer sink.Close()
	defer source.Close()
	came, sent := make(chan received, 1), make(chan tftp.Sent, 1)
	from := testbed.Now()
	go func() {
		r, err := tftp.Receive(sink, t.options())
		came <- received{r, testbed.Now(), err}
	}()
	go func() {
		n, _ := tftp.Send(source, t.FileBytes, t.options()) // a closed socket ends it; the receiver knows the result
		sent <- n
	}()
	r, err := awaitFile(ctx, sink, came, over)
	if err != nil {
		return err
	}
	if err := errors.Join(source.Close(), testbed.Sleep(ctx, 200*time.Millisecond)); err != nil { // for the last sample
		return err
	}
	after, err := s.Dropped()
	if err != nil {
		return err
	}
	f.Dropped, f.Seconds = after-dropped, r.at.Sub(from).Seconds()
	f.File = &File{Bytes: t.FileBytes, Arrived: min(r.Blocks*tftp.BlockBytes, t.FileBytes), Whole: r.err == nil}
	f.BitsPerSec = float64(f.File.Arrived) * 8 / f.Seconds
	f.Arrived, f.Sent = uint64(r.Blocks), uint64((<-sent).Blocks)
	if t.Beside {
		f.BesideBits = tcp.Goodput(testbed.DefaultPort+1, from, r.at) * 8
	}
	return nil
}

// awaitFile waits for a file until the given time has passed, and then ends the receiver.
func awaitFile(ctx context.Context, sink *receiverSocket, came <-chan received, over time.Duration) (r received, err error) {
	select {
	case r = <-came:
	case <-time.After(over):
		if err := sink.Close(); err != nil {
			return r, err
		}
		r = <-came
	case <-ctx.Done():
		return r, ctx.Err()
	}
	if errors.Is(r.err, net.ErrClosed) {
		return r, nil
	}
	return r, r.err
}

// receiverSocket answers the sender of the last datagram.
type receiverSocket struct {
	*net.UDPConn
	peer netip.AddrPort
}

// Read implements tftp.Conn.
func (c *receiverSocket) Read(p []byte) (n int, err error) {
	n, c.peer, err = c.ReadFromUDPAddrPort(p)
	return n, err
}

// Write implements tftp.Conn.
func (c *receiverSocket) Write(p []byte) (int, error) { return c.WriteToUDPAddrPort(p, c.peer) }

// fileSockets opens the sockets of a file's receiver and of its sender.
func fileSockets(s *routed.Site) (sink *receiverSocket, source *net.UDPConn, err error) {
	at := net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.Sink4, udpPort))
	sink = new(receiverSocket)
	err = s.Sink.Do(func() (err error) {
		sink.UDPConn, err = net.ListenUDP("udp4", at)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("open the socket of a file's receiver: %w", err)
	}
	err = s.Source.Do(func() (err error) {
		source, err = net.DialUDP("udp4", nil, at)
		return err
	})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open the socket of a file's sender: %w", err), sink.Close())
	}
	return sink, source, nil
}
