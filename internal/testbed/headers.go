package testbed

import "golang.org/x/sys/unix"

// Headers holds the bytes that TCP adds to the payload of a connection.
type Headers struct {
	PerSegment int     // IP and TCP header with options, in bytes
	IPFactor   float64 // IP bytes per byte of payload, as netnice counts
	LinkFactor float64 // the same with 14 bytes of Ethernet header, as HTB counts
}

// HeadersOf computes the overhead from the segments that a connection sent; before it sent anything, from its
// segment size.
func HeadersOf(c ConnInfo) Headers {
	h := Headers{PerSegment: 20 + 20}
	if c.IPv6 {
		h.PerSegment += 20
	}
	if c.Timestamps {
		h.PerSegment += 12
	}
	perByte := 0.0
	switch {
	case c.BytesSent > 0:
		perByte = float64(c.DataSegments) / float64(c.BytesSent)
	case c.MSS > 0:
		perByte = 1 / float64(c.MSS)
	}
	h.IPFactor = 1 + float64(h.PerSegment)*perByte
	h.LinkFactor = 1 + float64(h.PerSegment+14)*perByte
	return h
}

// HeadersOfAll weighs the overhead of several connections by the payload that each sent.
func HeadersOfAll(conns []ConnInfo) Headers {
	var sum ConnInfo
	for i, c := range conns {
		if i == 0 {
			sum = c
			continue
		}
		sum.BytesSent += c.BytesSent
		sum.DataSegments += c.DataSegments
	}
	return HeadersOf(sum)
}

// ConnInfo is a sending connection's state, from the kernel's TCP_INFO.
type ConnInfo struct {
	LocalPort    uint16  `json:"local_port"`
	IPv6         bool    `json:"ipv6,omitempty"`
	Timestamps   bool    `json:"timestamps"`
	State        uint8   `json:"state"`
	MSS          uint32  `json:"mss"`
	Cwnd         uint32  `json:"cwnd"` // segments
	RTTMicros    uint32  `json:"rtt_us"`
	MinRTTMicros uint32  `json:"min_rtt_us"`
	Retransmits  uint32  `json:"retransmits"` // segments, ever
	DeliveryRate uint64  `json:"delivery_rate"`
	PacingRate   uint64  `json:"pacing_rate"`
	MaxPacing    uint64  `json:"max_pacing_rate"` // all ones = none
	BytesSent    uint64  `json:"bytes_sent"`      // payload, retransmissions included
	BytesAcked   uint64  `json:"bytes_acked"`
	NotSent      uint32  `json:"not_sent"` // payload in the send buffer that never left
	DataSegments uint32  `json:"data_segments"`
	BusySeconds  float64 `json:"busy_seconds"` // with data outstanding
}

// readConnInfo reads TCP_INFO of a socket.
func readConnInfo(fd int) (ConnInfo, error) {
	ti, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return ConnInfo{}, err
	}
	const optionTimestamps = 1 // TCPI_OPT_TIMESTAMPS
	c := ConnInfo{
		State: ti.State, Timestamps: ti.Options&optionTimestamps != 0,
		MSS: ti.Snd_mss, Cwnd: ti.Snd_cwnd,
		RTTMicros: ti.Rtt, MinRTTMicros: ti.Min_rtt, Retransmits: ti.Total_retrans,
		DeliveryRate: ti.Delivery_rate, PacingRate: ti.Pacing_rate, MaxPacing: ti.Max_pacing_rate,
		BytesSent: ti.Bytes_sent, BytesAcked: ti.Bytes_acked, NotSent: ti.Notsent_bytes,
		DataSegments: ti.Data_segs_out, BusySeconds: float64(ti.Busy_time) / 1e6,
	}
	switch sa, err := unix.Getsockname(fd); a := sa.(type) {
	case *unix.SockaddrInet4:
		c.LocalPort = uint16(a.Port)
	case *unix.SockaddrInet6:
		c.LocalPort, c.IPv6 = uint16(a.Port), true
	default:
		return c, err
	}
	return c, nil
}
