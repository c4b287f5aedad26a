package testbed

// These are for the tests that also need package testutil.

const MeterBin = meterBin

// LoseStarter closes the sender's input, as the kernel does when the process that started it ends.
func (s *Sender) LoseStarter() error { return s.proc.stdin.Close() }

// Ended is closed when the sender's process has ended.
func (s *Sender) Ended() <-chan struct{} { return s.proc.ended }
