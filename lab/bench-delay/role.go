package delay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
)

// duties are the tasks of a program of a cell, performed at the same time. Texts are addresses with a port.
type duties struct {
	Ask    string        `json:"ask,omitempty"`    // asks there by UDP
	Fetch  string        `json:"fetch,omitempty"`  // gets answers there by HTTP, over a new connection each, one after the other
	Every  time.Duration `json:"every,omitempty"`  // between two questions, and at least between an answer and the next
	Answer string        `json:"answer,omitempty"` // answers questions there
	Serve  string        `json:"serve,omitempty"`  // serves HTTP there

	Flood  string  `json:"flood,omitempty"`  // sends full datagrams there
	Rate   float64 `json:"rate,omitempty"`   // rate of these datagrams, IP bytes/s
	Remote bool    `json:"remote,omitempty"` // packets on the way leave the socket's buffer
	Bulk   string  `json:"bulk,omitempty"`   // sends there by one TCP connection
	Drain  string  `json:"drain,omitempty"`  // reads such datagrams there
	Read   string  `json:"read,omitempty"`   // reads such a connection there
}

// trips holds the questions or fetches of a program.
type trips struct {
	Begun []testbed.Instant `json:"begun"` // starts of all trips
	Ended []testbed.Point   `json:"ended"` // answered trips: start and duration
}

// seen holds the results of a program so far.
type seen struct {
	At      testbed.Instant `json:"at"`
	Asked   trips           `json:"asked"`
	Fetched trips           `json:"fetched"`
	Came    float64         `json:"came"` // IP bytes of the rival traffic
}

const (
	floodPayload = 1400
	// segmentFactor is IP bytes per byte of payload in full segments of IPv4 with time stamps.
	segmentFactor = 1500.0 / 1448
	fetchTimeout  = 10 * time.Second
)

// role is the state of such a program.
type role struct {
	duties
	stopped atomic.Bool
	came    atomic.Uint64 // payload bytes of the rival traffic
	packets atomic.Uint64 // number of datagrams with these bytes, 0 for a connection

	mu             sync.Mutex
	asked, fetched trips
	failed         error
}

// newRole opens the listening sockets.
func newRole(d duties) (*role, error) {
	r := &role{duties: d}
	for _, of := range []struct {
		at   string
		open func(string) error
	}{{d.Answer, r.answer}, {d.Serve, r.serve}, {d.Drain, r.drain}, {d.Read, r.read}} {
		if of.at == "" {
			continue
		}
		if err := of.open(of.at); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// start begins the duties that the program performs by itself.
func (r *role) start() error {
	if r.Ask != "" {
		conn, err := net.Dial("udp4", r.Ask)
		if err != nil {
			return fmt.Errorf("ask %s: %w", r.Ask, err)
		}
		go r.hear(conn)
		go r.ask(conn)
	}
	if r.Fetch != "" {
		go r.fetch()
	}
	if r.Flood != "" {
		fd, err := r.dialFlood()
		if err != nil {
			return fmt.Errorf("flood %s: %w", r.Flood, err)
		}
		go r.flood(fd)
	}
	if r.Bulk != "" {
		conn, err := net.Dial("tcp4", r.Bulk)
		if err != nil {
			return fmt.Errorf("send to %s: %w", r.Bulk, err)
		}
		go r.bulk(conn)
	}
	return nil
}

// report returns the results so far.
func (r *role) report() seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := seen{At: testbed.Now(), Asked: r.asked, Fetched: r.fetched}
	if packets := r.packets.Load(); packets > 0 {
		s.Came = float64(r.came.Load() + packets*packetHeaders)
	} else {
		s.Came = float64(r.came.Load()) * segmentFactor
	}
	return s
}

func (r *role) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// fail records an error in the background; the reply to the next order contains it.
func (r *role) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = errors.Join(r.failed, err)
}

// noteTrip records a question or a fetch that began at an instant, and its duration if it was answered.
func (r *role) noteTrip(of *trips, begun testbed.Instant, answered bool) {
	took := testbed.Now().Sub(begun)
	r.mu.Lock()
	defer r.mu.Unlock()
	if answered {
		of.Ended = append(of.Ended, testbed.Point{T: begun, D: took})
	} else {
		of.Begun = append(of.Begun, begun)
	}
}

// ask asks again and again. The time for which the socket blocks the program is part of the delay.
func (r *role) ask(conn net.Conn) {
	tick := time.NewTicker(r.Every)
	defer tick.Stop()
	question := make([]byte, questionBytes)
	for !r.stopped.Load() {
		begun := testbed.Now()
		r.noteTrip(&r.asked, begun, false)
		binary.NativeEndian.PutUint64(question, uint64(begun))
		_, _ = conn.Write(question) // a refused question counts as lost
		<-tick.C
	}
}

// hear records the answers, which repeat the questions.
func (r *role) hear(conn net.Conn) {
	answer := make([]byte, 2*questionBytes)
	for {
		n, err := conn.Read(answer)
		switch {
		case errors.Is(err, unix.ECONNREFUSED): // caused by an earlier question
		case err != nil:
			r.fail(fmt.Errorf("hear answers: %w", err))
			return
		case n == questionBytes:
			r.noteTrip(&r.asked, testbed.Instant(binary.NativeEndian.Uint64(answer)), true)
		}
	}
}

func (r *role) answer(at string) error {
	addr, err := netip.ParseAddrPort(at)
	if err != nil {
		return err
	}
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(addr))
	if err != nil {
		return fmt.Errorf("answer questions: %w", err)
	}
	go func() {
		question := make([]byte, 2*questionBytes)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(question)
			if err == nil {
				_, err = conn.WriteToUDPAddrPort(question[:n], from)
			}
			if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
				r.fail(fmt.Errorf("answer questions: %w", err))
				return
			}
		}
	}()
	return nil
}

// fetch gets one answer after the other, and pauses for as long as each took. It therefore uses at most half of the rate
// that it could get.
func (r *role) fetch() {
	client := &http.Client{Timeout: fetchTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	for !r.stopped.Load() {
		begun := testbed.Now()
		r.noteTrip(&r.fetched, begun, false)
		if get(client, "http://"+r.Fetch) == nil { // else it was lost
			r.noteTrip(&r.fetched, begun, true)
		}
		time.Sleep(max(r.Every, testbed.Now().Sub(begun)))
	}
}

// get reads an answer to its end.
func get(client *http.Client, url string) error {
	answer, err := client.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	if err == nil && n != replyBytes {
		err = fmt.Errorf("%d bytes came, want %d", n, replyBytes)
	}
	return err
}

func (r *role) serve(at string) error {
	listener, err := net.Listen("tcp4", at)
	if err != nil {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	body := make([]byte, replyBytes)
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(body) // the client may have gone
		}),
		ReadHeaderTimeout: fetchTimeout,
	}
	go func() { r.fail(server.Serve(listener)) }()
	return nil
}

// dialFlood makes a socket with blocking calls, like most programs.
func (r *role) dialFlood() (int, error) {
	to, err := netip.ParseAddrPort(r.Flood)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if r.Remote {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 256<<20)
	}
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// flood sends until the process ends. After each sleep it sends the amount that the rate allows at once. It does not
// make up for time in a blocked call.
func (r *role) flood(fd int) {
	runtime.LockOSThread()
	payload := make([]byte, floodPayload)
	pause := time.Duration(float64(floodPayload+packetHeaders) / r.Rate * float64(time.Second))
	for due := time.Now(); ; due = due.Add(pause) {
		ahead := time.Until(due)
		if ahead > 200*time.Microsecond {
			time.Sleep(ahead)
		} else if ahead < -100*time.Millisecond {
			due = time.Now()
		}
		_, _ = unix.Write(fd, payload) // a refused datagram counts as lost
	}
}

func (r *role) drain(at string) error {
	addr, err := netip.ParseAddrPort(at)
	if err != nil {
		return err
	}
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(addr))
	if err != nil {
		return fmt.Errorf("read datagrams: %w", err)
	}
	go func() {
		buf := make([]byte, 2048)
		for {
			n, _, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				r.fail(fmt.Errorf("read datagrams: %w", err))
				return
			}
			r.came.Add(uint64(n))
			r.packets.Add(1)
		}
	}()
	return nil
}

// bulk sends until the process, or the connection, ends.
func (r *role) bulk(conn net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		if _, err := conn.Write(buf); err != nil {
			r.fail(fmt.Errorf("send: %w", err))
			return
		}
	}
}

func (r *role) read(at string) error {
	listener, err := net.Listen("tcp4", at)
	if err != nil {
		return fmt.Errorf("read a connection: %w", err)
	}
	go func() {
		conn, err := listener.Accept()
		buf := make([]byte, 256<<10)
		for n := 0; err == nil; {
			n, err = conn.Read(buf)
			r.came.Add(uint64(n))
		}
		r.fail(fmt.Errorf("read a connection: %w", err))
	}()
	return nil
}
