// Package testutil makes real traffic under known conditions and measures it:
// network namespaces of its own joined by veth pairs (NetNS, Pair) or by a path
// with delay and loss (NewDistantPair, package relay), queueing
// disciplines to compare with (HTB, TBF), senders and receivers that run as
// separate processes inside those namespaces (Sender, Receiver), and the
// figures drawn from them (Series, Jain, Percentile, CPU). Privileged tests,
// `netnice demo` and the benches under lab/ use it.
//
// It needs root and a kernel, no other program. Everything that it makes is
// held by file descriptors and pipes of the calling process: when that process
// ends, however it ends, namespaces, devices and traffic processes end too.
// It touches no namespace, device or process that it did not make; Supervise ends
// what earlier runs of the same tests left.
//
// A test calls RequireRoot, SkipUnlessAll and Subset; a TestMain MaybeRunTraffic,
// Supervise and RunSharded.
//
// A program that uses senders or receivers calls MaybeRunTraffic first of all
// in main or TestMain, because traffic processes are that same program again.
//
// Bytes: receivers count TCP payload, as it arrives. IP bytes (what netnice
// limits) are counted by a Meter, in the kernel, where they leave; or they, and
// link bytes (what HTB limits), are computed from payload with Headers.
package testutil
