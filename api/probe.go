package api

// Probe is what `netnice probe --json` prints: what a path to a host carries. Rates are IP bytes/s
// of packets of PacketBytes.
type Probe struct {
	Version string `json:"version"`
	Host    string `json:"host"`
	Address string `json:"address"`
	Packets string `json:"packets"` // icmp-timestamp, icmp-echo or udp
	// OneWay says that only the way there was measured; otherwise the narrower of both.
	OneWay   bool        `json:"one_way"`
	Capacity ProbeFigure `json:"capacity"`
	// Available is what traffic that runs there leaves; it is missing where no queue grew.
	Available *ProbeFigure `json:"available,omitempty"`
	// BurstBytes came at once, faster than the capacity: a token bucket's depth, about.
	BurstBytes  uint64 `json:"burst_bytes"`
	RoundTripNS uint64 `json:"least_round_trip_ns"`
	// Cost of the measurement.
	Trains      int    `json:"trains"`
	SentBytes   uint64 `json:"sent_bytes"`
	LostPackets int    `json:"lost_packets"`
	TookNS      uint64 `json:"took_ns"`
	PacketBytes int    `json:"packet_bytes"`
	// Fragments is how many packets were one to be answered, in fragments, where the machine could
	// not send single ones much faster than the path carries them; missing where they were single.
	Fragments int `json:"fragments,omitempty"`
	// TCP is what connections to the host say that have sent lately, missing if there are none.
	TCP *ProbeTCP `json:"tcp,omitempty"`
}

// ProbeFigure is a rate with about one standard error.
type ProbeFigure struct {
	BytesPerSec          uint64 `json:"bytes_per_sec"`
	PlusMinusBytesPerSec uint64 `json:"plus_minus_bytes_per_sec"`
	AtLeast              bool   `json:"at_least,omitempty"` // a lower bound only
}

// ProbeTCP is the kernel's own figures of running connections, before any probe packet was sent.
type ProbeTCP struct {
	Connections int `json:"connections"`
	AppLimited  int `json:"app_limited"` // that had no more to send: not in the rate
	// DeliveryBytesPerSec is payload, acknowledged, of all that the network held.
	DeliveryBytesPerSec uint64 `json:"delivery_bytes_per_sec"`
	RoundTripNS         uint64 `json:"least_round_trip_ns"`
}
