package relay

import "time"

// Counters holds the counts of a direction, since the start. Every received packet is forwarded, is Lost,
// Dropped or Overflowed, or is InFlight.
type Counters struct {
	Chunks    uint64 `json:"chunks"` // reads: the sender's offload puts many packets into one
	PacketsIn uint64 `json:"packets_in"`
	BytesIn   uint64 `json:"bytes_in"` // IP bytes, like all bytes here
	Packets   uint64 `json:"packets_out"`
	Bytes     uint64 `json:"bytes_out"`

	Lost       uint64 `json:"lost"`       // at random, as configured
	Dropped    uint64 `json:"dropped"`    // at the bottleneck, whose buffer was full
	Overflowed uint64 `json:"overflowed"` // for lack of the relay's own memory
	Malformed  uint64 `json:"malformed"`  // chunks that could not be cut
	Refused    uint64 `json:"refused"`    // refused by the target device

	InFlight  int `json:"in_flight"`       // packets
	MostQueue int `json:"most_queue"`      // bytes in the bottleneck, so far
	Buffer    int `json:"buffer_capacity"` // capacity of the relay itself, bytes

	// MostLate and MeanLate say how late packets were delivered: the relay waited for a processor.
	MostLate time.Duration `json:"most_late_ns"`
	MeanLate time.Duration `json:"mean_late_ns"`
	// Stalled is the time for which a packet was due and the relay had no processor. It sums the pauses of more than
	// 5 ms in both directions.
	Stalled time.Duration `json:"stalled_ns"`
}

// Unwanted counts the packets that the relay lost without a configured reason.
func (c Counters) Unwanted() uint64 { return c.Overflowed + c.Malformed + c.Refused }
