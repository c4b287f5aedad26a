// Package adapt decides how fast traffic without a congestion control of its own may be
// sent to a destination. It owns the law of control, what that remembers of the path, and
// when the path is probed; it knows neither sockets nor limits, both of which its caller has.
//
// Rates count bytes of IP packets.
package adapt
