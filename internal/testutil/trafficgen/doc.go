// Package trafficgen makes random programs that use the network in every way that it knows, each from a seed. A
// program chooses kinds of sockets, their history, their options, calls and amounts. It also chooses the processes
// that have them, the behaviour of the peers, and the kind and time of the limit. A program is a list of choices, so
// that one that evades a limit can be made as small as possible and kept.
//
// sender.py and peer.py execute programs; TestGenerated in internal/e2e limits them and measures.
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
