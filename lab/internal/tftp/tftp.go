// Package tftp sends and receives one file by the DATA and ACK packets of TFTP (RFC 1350) in windows (RFC 7440).
// Sender and receiver agree on the file and on the options before; there are no requests. The package owns the
// protocol, no socket.
package tftp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	opData, opAck = 3, 4
	headBytes     = 4
	// BlockBytes is the size of a block; the last one is smaller.
	BlockBytes = 512
)

// Options holds the options of both ends.
type Options struct {
	WindowBlocks int           // blocks that are sent before the sender waits for an ACK
	Timeout      time.Duration // time until it repeats them; the receiver reports a gap twice in it at most
}

// Conn is a connected datagram socket. Its end ends Send and Receive.
type Conn interface {
	io.ReadWriter
	SetReadDeadline(t time.Time) error
}

// Sent holds the results of a sender.
type Sent struct {
	Blocks   int // DATA packets, including repeated ones
	Timeouts int
}

// Send sends a file of zeros of that size until its last block is acknowledged.
func Send(c Conn, fileBytes int, o Options) (s Sent, err error) {
	blocks := fileBytes/BlockBytes + 1
	for acked := 0; acked < blocks; {
		for block := acked + 1; block <= min(acked+o.WindowBlocks, blocks); block++ {
			if err := sendBlock(c, block, min(BlockBytes, fileBytes-(block-1)*BlockBytes)); err != nil {
				return s, err
			}
			s.Blocks++
		}
		more, err := awaitAck(c, acked, o)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.Timeouts++
			continue
		}
		if err != nil {
			return s, err
		}
		acked += more
	}
	return s, nil
}

func sendBlock(c Conn, block, fileBytes int) error {
	packet := make([]byte, headBytes+fileBytes)
	binary.BigEndian.PutUint16(packet, opData)
	binary.BigEndian.PutUint16(packet[2:], uint16(block)) //nolint:gosec // the number wraps around after 65,535
	if _, err := c.Write(packet); err != nil {
		return fmt.Errorf("send block %d: %w", block, err)
	}
	return nil
}

// awaitAck returns the number of newly acknowledged blocks. A second ACK for the same blocks means that the next
// block did not arrive. An ACK for older blocks is late, and means nothing.
func awaitAck(c Conn, acked int, o Options) (more int, err error) {
	if err := c.SetReadDeadline(time.Now().Add(o.Timeout)); err != nil {
		return 0, fmt.Errorf("wait for an ACK: %w", err)
	}
	var packet [headBytes]byte
	for {
		n, err := c.Read(packet[:])
		if err != nil {
			return 0, fmt.Errorf("wait for an ACK: %w", err)
		}
		if n < headBytes || binary.BigEndian.Uint16(packet[:]) != opAck {
			continue
		}
		if more := int(binary.BigEndian.Uint16(packet[2:]) - uint16(acked)); more <= o.WindowBlocks { //nolint:gosec // modulo 65,536
			return more, nil
		}
	}
}

// Received holds the results of a receiver.
type Received struct {
	Blocks  int // blocks of the file, without a gap
	Useless int // DATA packets that arrived again, or behind a gap
}

// Receive receives a file, and returns when the file is complete. It does not answer again if the last ACK is lost.
func Receive(c Conn, o Options) (r Received, err error) {
	packet := make([]byte, headBytes+BlockBytes)
	unacked := 0
	var complained time.Time // last report of a gap: each ACK makes the sender begin a window
	for {
		n, err := c.Read(packet)
		switch {
		case err != nil:
			return r, fmt.Errorf("wait for a block: %w", err)
		case n < headBytes || binary.BigEndian.Uint16(packet) != opData:
			continue
		case binary.BigEndian.Uint16(packet[2:]) == uint16(r.Blocks+1): //nolint:gosec // modulo 65,536
			r.Blocks++
			unacked++
			complained = time.Time{}
			if isLast := n < len(packet); isLast {
				return r, sendAck(c, r.Blocks)
			}
			if unacked < o.WindowBlocks {
				continue
			}
		default:
			r.Useless++
			if time.Since(complained) < o.Timeout/2 {
				continue
			}
			complained = time.Now()
		}
		unacked = 0
		if err := sendAck(c, r.Blocks); err != nil {
			return r, err
		}
	}
}

func sendAck(c Conn, block int) error {
	packet := make([]byte, headBytes)
	binary.BigEndian.PutUint16(packet, opAck)
	binary.BigEndian.PutUint16(packet[2:], uint16(block)) //nolint:gosec // the number wraps around after 65,535
	if _, err := c.Write(packet); err != nil {
		return fmt.Errorf("acknowledge block %d: %w", block, err)
	}
	return nil
}
