package bpf

// CoverEvent returns the cgroup that an event asks to bring into the scope of the egress hook. ok is false for other
// events.
func CoverEvent(sample []byte) (cgroup uint64, ok bool) {
	list, _ := records[EgressEvent](sample, nil) // records returns only the error that it is given
	if len(list) == 0 || list[0].Kind != EventCover {
		return 0, false
	}
	return list[0].Cgroup, true
}

// QueueEvent returns for which network namespace an event asks for a queue for non-TCP egress. ok is false for other
// events.
func QueueEvent(sample []byte) (wanted QueueWanted, ok bool) {
	list, _ := records[QueueWanted](sample, nil) // records returns only the error that it is given
	if len(list) == 0 || list[0].Kind != EventQueue {
		return QueueWanted{}, false
	}
	return list[0], true
}

// GateEvent returns the namespace and node of the credit gate that a packet has passed. ok is false for other events.
func GateEvent(sample []byte) (key OutflowKey, ok bool) {
	list, _ := records[QueueWanted](sample, nil) // records returns only the error that it is given
	if len(list) == 0 || list[0].Kind != EventGate {
		return OutflowKey{}, false
	}
	return OutflowKey{Netns: list[0].Netns, Node: list[0].Node}, true
}

// RequestOf decodes a record of Requests.
func RequestOf(sample []byte) (r Request, ok bool) {
	list, _ := records[Request](sample, nil) // records returns only the error that it is given
	if len(list) == 0 {
		return Request{}, false
	}
	return list[0], true
}
