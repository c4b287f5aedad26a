package api

// Probe is the output of `netnice probe --json`: the capacity of the path to a host. Rates are IP bytes/s of packets of
// PacketBytes.
type Probe struct {
	Version string `json:"version"` // the version of the API
	Host    string `json:"host"`    // the text of the request
	Address string `json:"address"` // the address that was measured
	Packets string `json:"packets"` // icmp-timestamp, icmp-echo or udp
	// OneWay says that only the forward path was measured; otherwise the figure is that of the narrower direction.
	OneWay   bool        `json:"one_way"`
	Capacity ProbeFigure `json:"capacity"` // the capacity of the path
	// Available is the rate that other traffic on the path leaves; it is missing where no queue grew.
	Available *ProbeFigure `json:"available,omitempty"`
	// BurstBytes arrived at once, faster than the capacity: about the depth of a token bucket.
	BurstBytes  uint64 `json:"burst_bytes"`
	RoundTripNS uint64 `json:"least_round_trip_ns"` // the shortest round trip
	// Trains and the fields after it are the cost of the measurement. Trains is the number of trains of probes.
	Trains      int    `json:"trains"`
	SentBytes   uint64 `json:"sent_bytes"`   // the bytes of all probe packets
	LostPackets int    `json:"lost_packets"` // the number of lost probe packets
	TookNS      uint64 `json:"took_ns"`      // how long the measurement took
	PacketBytes int    `json:"packet_bytes"` // the size of a probe packet
	// Fragments is the number of packets that made up one probe, as its fragments. The prober sends fragments where the
	// machine cannot send single packets much faster than the path carries them. Fragments is missing if the packets
	// were single.
	Fragments int `json:"fragments,omitempty"`
	// TCP has the figures of connections to the host that have sent recently; it is missing if there are none.
	TCP *ProbeTCP `json:"tcp,omitempty"`
}

// ProbeFigure is a rate with about one standard error.
type ProbeFigure struct {
	BytesPerSec          uint64 `json:"bytes_per_sec"`            // the rate
	PlusMinusBytesPerSec uint64 `json:"plus_minus_bytes_per_sec"` // one standard error of the rate
	AtLeast              bool   `json:"at_least,omitempty"`       // whether the figure is a lower bound only
}

// ProbeTCP has the kernel's own figures of running connections, taken before the first probe packet.
type ProbeTCP struct {
	Connections int `json:"connections"` // the number of connections
	AppLimited  int `json:"app_limited"` // these had no more to send, and are not in the rate
	// DeliveryBytesPerSec is acknowledged payload, of all connections whose rate the network bounded.
	DeliveryBytesPerSec uint64 `json:"delivery_bytes_per_sec"`
	RoundTripNS         uint64 `json:"least_round_trip_ns"` // the shortest round trip
}
