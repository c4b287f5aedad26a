package bpf

// CoverEvent returns the cgroup that an event asks the egress hook to see, if it
// is such an event.
func CoverEvent(sample []byte) (cgroup uint64, ok bool) {
	list, _ := records[EgressEvent](sample, nil) // which has no error without one
	if len(list) == 0 || list[0].Kind != EventCover {
		return 0, false
	}
	return list[0].Cgroup, true
}

// QueueEvent returns where a queue for what is no TCP is wanted, if that is what an
// event asks for.
func QueueEvent(sample []byte) (wanted QueueWanted, ok bool) {
	list, _ := records[QueueWanted](sample, nil) // which has no error without one
	if len(list) == 0 || list[0].Kind != EventQueue {
		return QueueWanted{}, false
	}
	return list[0], true
}

// GateEvent returns by whose gate something has left, if an event says so.
func GateEvent(sample []byte) (key OutflowKey, ok bool) {
	list, _ := records[QueueWanted](sample, nil) // which has no error without one
	if len(list) == 0 || list[0].Kind != EventGate {
		return OutflowKey{}, false
	}
	return OutflowKey{Netns: list[0].Netns, Node: list[0].Node}, true
}

// RequestOf decodes a record of Requests.
func RequestOf(sample []byte) (r Request, ok bool) {
	list, _ := records[Request](sample, nil) // which has no error without one
	if len(list) == 0 {
		return Request{}, false
	}
	return list[0], true
}
