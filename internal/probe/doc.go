// Package probe measures what a path to a host carries, with few small trains of
// packets whose answers it times. It owns the packets (ICMP Timestamp, ICMP and ICMPv6
// echo, UDP to a netnice peer) and their parsers. It also owns the reflector that answers the last kind,
// and the estimates from the times. It sets no limits and asks no daemon.
//
// Sizes and rates count IP bytes, headers included. Times are nanoseconds of
// CLOCK_REALTIME, as the kernel stamps packets. A peer's times come from its own clock, so
// only their differences have a meaning.
package probe
