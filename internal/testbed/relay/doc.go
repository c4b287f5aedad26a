// Package relay joins two network namespaces by a path with distance: delay,
// jitter, random loss, and a bottleneck with a buffer, each direction on its
// own, IPv4 and IPv6. The kernel's netem does the same where there is one.
//
// At each end there is a TUN device. A process of its own takes the packets off one and, at their time, puts them
// into the other. Senders use segmentation offload as on a real device, but the relay moves segments: each is
// counted, lost, queued and delivered by itself.
//
// A program that uses it calls MaybeRun first of all in main or TestMain (testbed.MaybeRunTraffic does). The reason
// is that the relay process is an instance of that same program. It ends when the program that started it ends.
package relay
