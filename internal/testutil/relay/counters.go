package relay

import "time"

// Counters are a direction's, since the start. Every packet that came in has
// gone out, is Lost, Dropped or Overflowed, or is InFlight.
type Counters struct {
	Chunks    uint64 `json:"chunks"` // reads: the sender's offload puts many packets into one
	PacketsIn uint64 `json:"packets_in"`
	BytesIn   uint64 `json:"bytes_in"` // IP bytes, as all here
	Packets   uint64 `json:"packets_out"`
	Bytes     uint64 `json:"bytes_out"`

	Lost       uint64 `json:"lost"`       // at random, as configured
	Dropped    uint64 `json:"dropped"`    // at the bottleneck, whose buffer was full
	Overflowed uint64 `json:"overflowed"` // for want of the relay's own memory
	Malformed  uint64 `json:"malformed"`  // chunks that could not be cut
	Refused    uint64 `json:"refused"`    // by the device that they go to

	InFlight  int `json:"in_flight"`       // packets
	MostQueue int `json:"most_queue"`      // bytes in the bottleneck, so far
	Buffer    int `json:"buffer_capacity"` // of the relay itself, bytes

	// How late packets were delivered: the relay waited for a processor.
	MostLate time.Duration `json:"most_late_ns"`
	MeanLate time.Duration `json:"mean_late_ns"`
	// For how long something was due and the relay had no processor, pauses of more than 5 ms
	// together, in both directions.
	Stalled time.Duration `json:"stalled_ns"`
}

// Unwanted counts what the relay lost without being told to.
func (c Counters) Unwanted() uint64 { return c.Overflowed + c.Malformed + c.Refused }
