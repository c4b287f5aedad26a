package testbed

import (
	"errors"
	"sync"
	"time"
)

// Receiver is a process that reads and counts the data of senders.
type Receiver struct {
	*Series
	proc *proc
	cfg  ReceiverConfig
}

// StartReceiver starts a receiver in the namespace. It listens, on IPv4 and
// IPv6, when this returns. Close ends it.
func StartReceiver(n *NetNS, cfg ReceiverConfig) (*Receiver, error) {
	cfg = cfg.withDefaults()
	r := &Receiver{Series: new(Series), cfg: cfg}
	var err error
	r.proc, err = startProc(n, roleReceiver, cfg.UID, order{Do: doConfigure, Receiver: &cfg}, func(m report) {
		switch {
		case m.Conn != nil:
			r.AddConn(*m.Conn)
		case m.Sample != nil:
			r.AddSample(*m.Sample)
		}
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// PID returns the pid of the process.
func (r *Receiver) PID() int { return r.proc.cmd.Process.Pid }

// CPUSeconds returns the CPU time that the process has used so far.
func (r *Receiver) CPUSeconds() (float64, error) {
	m, err := r.proc.ask(order{Do: doInfo}, doInfo)
	return m.CPU, err
}

// Close ends the process; its counts stay readable.
func (r *Receiver) Close() error { return r.proc.close() }

// Sender is a process that sends to a Receiver.
type Sender struct {
	proc *proc

	mu           sync.Mutex
	rtt, latency []Point
	done         chan struct{}
}

// StartSender starts a sender in the namespace. It exists when this returns,
// and does nothing before Connect or Start. Stop or Close ends it.
func StartSender(n *NetNS, cfg SenderConfig) (*Sender, error) {
	if n == nil {
		return nil, errors.New("start sender: no namespace")
	}
	return startSender(n, cfg)
}

func startSender(n *NetNS, cfg SenderConfig) (*Sender, error) {
	s := &Sender{done: make(chan struct{})}
	var err error
	s.proc, err = startProc(n, roleSender, cfg.UID, order{Do: doConfigure, Sender: &cfg}, func(m report) {
		if m.Saw == sawDone {
			close(s.done)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rtt = append(s.rtt, m.RTT...)
		s.latency = append(s.latency, m.Latency...)
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// PID returns the pid of the process.
func (s *Sender) PID() int { return s.proc.cmd.Process.Pid }

// Connect opens the connections and sends nothing.
func (s *Sender) Connect() error {
	_, err := s.proc.ask(order{Do: doConnect}, doConnect)
	return err
}

// Start opens the connections if Connect has not, starts to send, and returns the instant of the start.
func (s *Sender) Start() (Instant, error) {
	m, err := s.proc.ask(order{Do: doStart}, doStart)
	return m.T, err
}

// Grow has the sender, which must be started and endless, open n more
// connections and send over them, too.
func (s *Sender) Grow(n int) error {
	_, err := s.proc.ask(order{Do: doGrow, More: n}, doGrow)
	return err
}

// Fork has the sender start a child process that sends too, at once, and
// returns the child's pid. The child ends with the sender, and its report is in
// the sender's.
func (s *Sender) Fork(cfg SenderConfig) (int, error) {
	m, err := s.proc.ask(order{Do: doFork, Sender: &cfg}, doFork)
	return m.PID, err
}

// Info returns the state of the sender's own connections and the CPU seconds
// that it has used.
func (s *Sender) Info() ([]ConnInfo, float64, error) {
	m, err := s.proc.ask(order{Do: doInfo}, doInfo)
	return m.Conns, m.CPU, err
}

// Done is closed once the kernel has taken all of the configured Bytes.
func (s *Sender) Done() <-chan struct{} { return s.done }

// RTT returns the smoothed round trips of the connections, read from TCP_INFO
// every 10 ms, with from <= T < to.
func (s *Sender) RTT(from, to Instant) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Between(s.rtt, from, to)
}

// Latency returns the durations of requests or short connections that completed with from <= T < to.
func (s *Sender) Latency(from, to Instant) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Between(s.latency, from, to)
}

// Stop ends the sender and its children at once, and discards the data in their sockets.
func (s *Sender) Stop() (SenderReport, error) {
	m, err := s.proc.ask(order{Do: doStop}, doStop)
	err = errors.Join(err, s.proc.close())
	if m.Final == nil {
		return SenderReport{PID: s.PID()}, err
	}
	return *m.Final, err
}

// Close ends the sender without a report. Connections that were closed before still drain; open ones too. Closing
// after Stop is harmless.
func (s *Sender) Close() error { return s.proc.close() }
