package scenario

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/testbed"
)

func TestMain(m *testing.M) {
	testbed.MaybeRunTraffic()
	if text := os.Getenv("SCENARIO_PART"); text != "" {
		if err := play(text); err != nil {
			fmt.Fprintln(os.Stderr, text, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// part is the task of a process of a test, which starts on request. All senders send the same data.
type part struct {
	Do string // "receive", "send", "proxy", "take" and "throw" (datagrams)
	At string // listen here, or
	To string // connect there; a proxy does both
	// Bytes is the amount to send; datagrams go at the rate PerSec, for a time.
	Bytes   int
	PerSec  float64
	Seconds float64
}

// played is the result of a part.
type played struct {
	Bytes   int
	Early   int     // bytes that arrived before the rate had settled
	Seconds float64 // time from settling to the last byte
	Sum     string  // hash of a stream
	Broken  int     // datagrams that differ from those sent, or came before
	Err     string
}

func (p played) rate() float64 { return float64(p.Bytes-p.Early) / p.Seconds }

// count counts arrived bytes, from begin on.
func (p *played) count(begin time.Time, settle time.Duration, n int) {
	p.Bytes += n
	at := time.Since(begin) - settle
	if at <= 0 {
		p.Early = p.Bytes
	}
	p.Seconds = at.Seconds()
}

const (
	datagram = 1000 // bytes of payload
	quiet    = time.Second
	// settled is the time until a rate is steady: the first window is free, and the queue for egress takes its time
	// to appear.
	settled, settledDatagrams = 200 * time.Millisecond, 1500 * time.Millisecond
)

func content() io.Reader { return rand.NewChaCha8([32]byte{'n', 'n'}) }

// sum returns the hash of the first n bytes of content.
func sum(n int) string {
	h := sha256.New()
	_, _ = io.CopyN(h, content(), int64(n)) // neither fails
	return fmt.Sprintf("%x", h.Sum(nil))
}

// play is the process. It says that it is ready, waits for a line, plays its part, prints the result, and waits for
// the end of its input. The test can therefore read limits and counters before and after.
func play(text string) error {
	var p part
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	in, out := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	s, err := p.open()
	if err != nil {
		return err
	}
	if err := out.Encode(played{}); err != nil {
		return err
	}
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	done, err := s.run(p)
	if err != nil {
		done.Err = err.Error()
	}
	if err := out.Encode(done); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, in)
	return nil
}

// opened holds the sockets on which a process listens before it is ready.
type opened struct {
	listener net.Listener
	packets  net.PacketConn
}

func (p part) open() (s opened, err error) {
	if p.At == "" {
		return s, nil
	}
	if p.Do == "take" {
		s.packets, err = net.ListenPacket("udp", p.At)
	} else {
		s.listener, err = net.Listen("tcp", p.At)
	}
	return s, err
}

func (s opened) connection(p part) (net.Conn, error) {
	if s.listener != nil {
		return s.listener.Accept()
	}
	return net.Dial("tcp", p.To)
}

func (s opened) run(p part) (played, error) {
	switch p.Do {
	case "take":
		return take(s.packets)
	case "throw":
		return throw(p)
	}
	conn, err := s.connection(p)
	if err != nil {
		return played{}, err
	}
	defer conn.Close()
	switch p.Do {
	case "send":
		_, err := io.CopyN(conn, content(), int64(p.Bytes))
		return played{Bytes: p.Bytes}, err
	case "receive":
		return receiveAll(conn)
	case "proxy":
		out, err := net.Dial("tcp", p.To)
		if err != nil {
			return played{}, err
		}
		defer out.Close()
		// A program without splice copies like this.
		n, err := io.Copy(struct{ io.Writer }{out}, struct{ io.Reader }{conn})
		return played{Bytes: int(n)}, err
	}
	return played{}, errors.New("no such part")
}

func receiveAll(conn net.Conn) (done played, err error) {
	h, buffer := sha256.New(), make([]byte, 64<<10)
	var begin time.Time
	for {
		n, err := conn.Read(buffer)
		if n > 0 {
			if done.Bytes == 0 {
				begin = time.Now()
			}
			h.Write(buffer[:n])
			done.count(begin, settled, n)
		}
		if errors.Is(err, io.EOF) {
			done.Sum = fmt.Sprintf("%x", h.Sum(nil))
			return done, nil
		}
		if err != nil {
			return done, err
		}
	}
}

// fill makes the datagram of that number.
func fill(b []byte, number uint64) {
	for at := 0; at < len(b); at += 8 {
		binary.BigEndian.PutUint64(b[at:], number+uint64(at)<<32)
	}
}

// take receives datagrams until none came for a while.
func take(conn net.PacketConn) (done played, err error) {
	buffer, want := make([]byte, 64<<10), make([]byte, datagram)
	seen := map[uint64]bool{}
	var begin time.Time
	for {
		if done.Bytes > 0 {
			if err := conn.SetReadDeadline(time.Now().Add(quiet)); err != nil {
				return done, err
			}
		}
		n, _, err := conn.ReadFrom(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return done, nil
		}
		if err != nil {
			return done, err
		}
		if done.Bytes == 0 {
			begin = time.Now()
		}
		done.count(begin, settledDatagrams, n)
		number := binary.BigEndian.Uint64(buffer)
		fill(want, number)
		if !bytes.Equal(buffer[:n], want) || seen[number] {
			done.Broken++
		}
		seen[number] = true
	}
}

// throw sends datagrams.
func throw(p part) (done played, err error) {
	conn, err := net.Dial("udp", p.To)
	if err != nil {
		return done, err
	}
	defer conn.Close()
	buffer, begin := make([]byte, datagram), time.Now()
	for number := uint64(0); done.Seconds < p.Seconds; number++ {
		time.Sleep(time.Duration(float64(done.Bytes)/p.PerSec*1e9) - time.Since(begin))
		fill(buffer, number)
		if _, err := conn.Write(buffer); err != nil {
			return done, err
		}
		done.Bytes += datagram
		done.Seconds = time.Since(begin).Seconds()
	}
	return done, nil
}

// actor is a process that plays a part.
type actor struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// cast starts a process in a namespace; it is ready when this returns.
func cast(t *testing.T, n *testbed.NetNS, p part) *actor {
	t.Helper()
	text, err := json.Marshal(p)
	require.NoError(t, err)
	a := &actor{t: t, cmd: exec.Command(os.Args[0])}
	a.cmd.Env = append(os.Environ(), "SCENARIO_PART="+string(text))
	a.cmd.Stderr = os.Stderr
	a.in, err = a.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := a.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, n.Start(a.cmd))
	t.Cleanup(func() {
		_ = a.cmd.Process.Kill()
		_ = a.cmd.Wait()
	})
	a.out = json.NewDecoder(out)
	require.NoError(t, a.out.Decode(&played{}), "%+v is not ready", p)
	return a
}

func (a *actor) begin() {
	a.t.Helper()
	_, err := a.in.Write([]byte("go\n"))
	require.NoError(a.t, err)
}

// end waits for the result of the part.
func (a *actor) end() (done played) {
	a.t.Helper()
	timer := time.AfterFunc(30*time.Second, func() { _ = a.cmd.Process.Kill() })
	defer timer.Stop()
	require.NoError(a.t, a.out.Decode(&done))
	require.Empty(a.t, done.Err)
	return done
}
