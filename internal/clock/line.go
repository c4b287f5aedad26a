package clock

// Line describes the line overhead: the bytes that a link adds to each packet. The zero value means no overhead.
type Line struct {
	Overhead, Least uint64 // bytes
	Cells           bool   // ATM cells: 53 bytes with 48 bytes of payload
}

// Bytes returns how many bytes the link carries for the given IP bytes. They are in packets of segment bytes, of which
// the last one may be shorter. If segment is 0, they are in one packet.
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
