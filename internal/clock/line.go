package clock

// Line is what a line carries for a packet beside its IP bytes. The zero value is nothing.
type Line struct {
	Overhead, Least uint64 // bytes
	Cells           bool   // ATM's, of 53 bytes with 48 of payload
}

// Bytes is what the line carries for so many IP bytes in packets of segment bytes and a shorter last
// one; segment 0: in one packet.
func (l Line) Bytes(bytes, segment uint64) (line uint64) {
	if l == (Line{}) {
		return bytes
	}
	for bytes > 0 {
		packet := bytes
		if segment != 0 {
			packet = min(packet, segment)
		}
		bytes -= packet
		packet = max(packet+l.Overhead, l.Least)
		if !l.Cells {
			line += packet
			continue
		}
		for ; packet > 48; packet -= 48 {
			line += 53
		}
		line += 53
	}
	return line
}
