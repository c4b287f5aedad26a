// Package testbed makes real traffic under known conditions and measures it. It has network namespaces of its own,
// joined by veth pairs (NetNS, Pair) or by a path with delay and loss (NewDistantPair, package relay). It has
// queueing disciplines to compare with (HTB, TBF). Senders and receivers run as separate processes inside those
// namespaces (Sender, Receiver). Figures come from them (Series, Jain, Percentile, CPU). Privileged tests, `netnice
// demo` and the benches under lab/ use the package.
//
// It needs root and a kernel, no other program. File descriptors and pipes of the calling process hold all its
// objects: namespaces, devices and traffic processes end with that process, in whatever way it ends. It touches no
// namespace, device or process that it did not make.
//
// A program that uses senders or receivers calls MaybeRunTraffic first of all in main or TestMain, because traffic
// processes are instances of that same program.
//
// Receivers count TCP payload, as it arrives. netnice limits IP bytes, and HTB limits link bytes. A Meter counts IP
// bytes in the kernel, where they leave; Headers computes IP and link bytes from payload.
package testbed
