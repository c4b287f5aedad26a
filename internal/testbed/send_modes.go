package testbed

import (
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// bulk writes to the connection until the sender stops or Bytes are written. In the latter case it closes the
// connection, which then drains.
func (s *sending) bulk(fd int) {
	left := s.cfg.Bytes
	for !s.stop.Load() {
		chunk := s.buf[:s.cfg.WriteSize]
		if s.cfg.Bytes > 0 && left < int64(len(chunk)) {
			chunk = chunk[:left]
		}
		n, err := write(fd, chunk)
		s.written.Add(int64(n))
		left -= int64(n)
		if err != nil {
			return // reset by the sender's own stop or by the receiver
		}
		if s.cfg.Bytes > 0 && left == 0 {
			s.end(fd)
			return
		}
		time.Sleep(s.pacingDelay(n))
	}
}

// pacingDelay accounts for n written bytes. It returns the time that the caller must wait to keep to
// UpToBytesPerSec. A sender that was blocked catches up on 10 ms at most.
func (s *sending) pacingDelay(n int) time.Duration {
	if s.cfg.UpToBytesPerSec == 0 {
		return 0
	}
	const catchUp = 10 * time.Millisecond
	s.mu.Lock()
	defer s.mu.Unlock()
	now := Now()
	s.nextWriteAt = max(s.nextWriteAt, now.Add(-catchUp)).Add(time.Duration(float64(n) / s.cfg.UpToBytesPerSec * 1e9))
	if wait := s.nextWriteAt.Sub(now); wait > time.Millisecond { // less is not worth a sleep
		return wait
	}
	return 0
}

// end keeps a last reading of a connection that wrote everything, and closes it.
func (s *sending) end(fd int) {
	c, err := readConnInfo(fd)
	s.mu.Lock()
	if err == nil {
		s.ended = append(s.ended, c)
	}
	s.mu.Unlock()
	_ = s.close(fd) // a TCP socket's close returns no useful error
}

// write blocks until the kernel has taken all bytes, in one system call unless a signal interrupts it.
func write(fd int, b []byte) (int, error) {
	done := 0
	for done < len(b) {
		n, err := unix.Write(fd, b[done:])
		if n > 0 {
			done += n
		}
		if err != nil && err != unix.EINTR {
			return done, err
		}
	}
	return done, nil
}

// requests sends requests and waits for the replies, one at a time.
func (s *sending) requests(fd int) {
	for !s.stop.Load() {
		t := Now()
		n, err := write(fd, s.buf[:s.cfg.RequestBytes])
		s.written.Add(int64(n))
		if err != nil {
			return
		}
		if err := readFull(fd, s.cfg.ReplyBytes); err != nil {
			return
		}
		s.completedAt(t)
		time.Sleep(s.cfg.Pause)
	}
}

// readFull reads exactly n bytes.
func readFull(fd, n int) error {
	buf := make([]byte, n)
	for n > 0 {
		got, err := unix.Read(fd, buf[:n])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case got == 0:
			return io.EOF
		default:
			n -= got
		}
	}
	return nil
}

// completedAt records the duration of an operation that began at t.
func (s *sending) completedAt(t Instant) {
	now := Now()
	s.completed.Add(1)
	s.mu.Lock()
	s.latency = append(s.latency, Point{now, now.Sub(t)})
	s.mu.Unlock()
}

// shortConnections opens one connection after another.
func (s *sending) shortConnections() {
	for !s.stop.Load() {
		t := Now()
		if err := s.shortConnection(); err != nil {
			if !s.stop.Load() {
				s.failed.Add(1)
				time.Sleep(10 * time.Millisecond) // do not spin on a lasting fault
			}
			continue
		}
		s.completedAt(t)
	}
}

func (s *sending) shortConnection() error {
	fd, err := s.connect()
	if err != nil {
		return err
	}
	n, err := write(fd, s.buf[:s.cfg.ShortBytes])
	s.written.Add(int64(n))
	if err == nil && s.cfg.ShortWait {
		if err = unix.Shutdown(fd, unix.SHUT_WR); err == nil {
			if err = readFull(fd, 1); errors.Is(err, io.EOF) { // the receiver has read all and closed
				err = nil
			}
		}
	}
	return errors.Join(err, s.close(fd))
}
