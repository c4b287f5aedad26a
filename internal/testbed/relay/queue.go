package relay

// queue holds packets until they are due, in order, in one piece of memory. It touches only the memory in use.
type queue struct {
	bytes   []byte
	entries []entry // a ring
	first   int     // index of the oldest
	count   int
	write   int // offset of the next packet's bytes
}

type entry struct {
	due    int64
	at, to int // its bytes
}

func newQueue(bytes, packets int) *queue {
	return &queue{bytes: make([]byte, bytes), entries: make([]entry, packets)}
}

// push adds a packet; false if there is no room.
func (q *queue) push(due int64, headers, payload []byte) bool {
	n := len(headers) + len(payload)
	if q.count == len(q.entries) {
		return false
	}
	at := q.write
	if q.count == 0 {
		at = 0
	} else if oldest := q.entries[q.first].at; at > oldest {
		if at+n > len(q.bytes) {
			at = 0 // a packet must be contiguous
		}
		if at == 0 && n >= oldest {
			return false
		}
	} else if at+n >= oldest {
		return false
	}
	if at+n > len(q.bytes) {
		return false
	}
	copy(q.bytes[at:], headers)
	copy(q.bytes[at+len(headers):], payload)
	q.entries[(q.first+q.count)%len(q.entries)] = entry{due, at, at + n}
	q.count++
	q.write = at + n
	return true
}

// head returns the oldest packet and its arrival time; ok is false without one.
func (q *queue) head() (packet []byte, due int64, ok bool) {
	if q.count == 0 {
		return nil, 0, false
	}
	e := q.entries[q.first]
	return q.bytes[e.at:e.to], e.due, true
}

// pop removes the oldest packet.
func (q *queue) pop() {
	q.first = (q.first + 1) % len(q.entries)
	q.count--
}
