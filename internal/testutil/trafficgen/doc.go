// Package trafficgen makes random programs that use the network in every way that it knows, each
// from a seed: what kinds of sockets, what they were used for before, which options they have, by which calls
// they send how much, who has them, how their peers behave, and when which limit is set. A program is a
// list of choices, so that one that gets around a limit can be made as small as possible and kept.
//
// sender.py and peer.py carry programs out; TestGenerated in internal/e2e limits them and measures.
package trafficgen

import _ "embed"

// Sender is the Python program that carries a Program out, behind the prelude of internal/e2e.
//
//go:embed sender.py
var Sender string

// Peer is the Python program that its senders send to.
//
//go:embed peer.py
var Peer string
