// Package adapt decides the rate of traffic to a destination that has no congestion control of its own. It owns the
// control law, the law's state of the path, and the times of the probes. It knows neither sockets nor limits: its
// caller has both.
//
// Rates count bytes of IP packets.
package adapt
