package trafficgen

import "slices"

// limitsReceived holds the dimensions of the limit of a program that receives.
var limitsReceived = limitsOf("down", "down", "total")

// receivers holds the dimensions of each thread or process that receives. Its peer sends.
var receivers = []dimension{
	{"kind", always("tcp", "tcp", "tcp", "mptcp", "mptcp", "udp", "udp", "udplite")},
	{"family", always("4", "6", "mapped")},
	{"life", slices.Concat(always("keeps", "keeps", "closes", "ends", "crowd", "shares", "wanders"), onlyIf(stream, "aborts", "serves"))},
	place, past, handle,
	{"option", receiverOptions},
	{"option2", receiverOptions},
	{"call", slices.Concat(always("recv", "msg"), onlyIf(stream, "discard", "splice", "ring", "ring_read"), onlyIf(receivesByRingAlone, "ring_closed"),
		onlyIf(datagram, "recvmmsg"), onlyIf(udp, "told"), onlyIf(receivesUnconnected, "unconnected"))},
	{"bytes", always("65536", "100", "1400", "9000", "1048576")},
	{"peer", slices.Concat(always("floods", "bursts", "small"), onlyIf(stream, "stalls", "resets", "reorders", "duplicates"), onlyIf(converses, "converses"), onlyIf(udp, "pieces"))},
	beside,
}

// receivesByRingAlone says whether a receiver may close the descriptor of a ring's socket; one that converses sends by
// it.
func receivesByRingAlone(l, s Traits) bool { return stream(l, s) && ringHasSocketAlone(l, s) }

// converses says whether a receiver may send on its connection as well.
func converses(l, s Traits) bool { return stream(l, s) && s["call"] != "ring_closed" }

func receivesUnconnected(l, s Traits) bool { return manyPlaces(l, s) }

func serves(_, s Traits) bool { return s["life"] == "serves" }

// receiverOptions holds the options that a program sets on sockets by which it receives; it sets two.
var receiverOptions = slices.Concat(always("none", "rcvbuf_small", "rcvbuf_large", "busy_poll", "tos", "filter", "ip_options"),
	onlyIf(stream, "nodelay", "maxseg_100", "maxseg_536", "window_clamp", "rcvlowat", "keepalive", "quickack", "fastopen"),
	onlyIf(udp, "coalesced"),
	onlyIf(isTCP, "md5_full"), onlyIf(serves, "defer_accept", "defer_accept"))
