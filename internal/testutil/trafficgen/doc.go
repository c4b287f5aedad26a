// Package trafficgen makes random programs that use the network in every way that it knows, each from a seed. A
// program chooses kinds of sockets, their history, their options, calls and amounts. It also chooses the processes
// that have them, the behaviour of the peers, and the kind and time of the limit. A program is a list of choices, so
// that one that evades a limit can be made as small as possible and kept.
//
// Some ways to send are not among the choices. leftout.go names those that lead out of a limit. These do not, or need
// more than programs have:
//   - SCTP and DCCP, for no kernel that the tests run on has them;
//   - packet sockets and AF_XDP, which take CAP_NET_RAW and lead out;
//   - a TUN device, which only CAP_NET_ADMIN can give to a user, and which sends nothing unless the kernel forwards.
//
// Where a kernel has no TLS or SMC (Linux 6.18 on the machine of the measurements has neither), a program goes on
// without, says so, and Coverage does not count the choice.
//
// sender.py, receiver.py and peer.py execute programs; TestGenerated and TestGeneratedReceiving in internal/e2e limit
// them and measure.
package trafficgen

import _ "embed"

//go:embed sender.py
var senderText string

//go:embed receiver.py
var receiverText string

// Sender and Receiver are the Python programs that carry a Program out, behind the prelude of internal/e2e.
var (
	Sender   = senderText + "\n\nmain(Sender)\n"
	Receiver = senderText + receiverText + "\n\nmain(Receiver)\n"
)

// Peer is the Python program that its senders send to.
//
//go:embed peer.py
var Peer string
