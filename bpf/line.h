/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a line carries for a packet: headers of its own, a least size, cells. It
 * is charged on the device's clock, so that this is full when the line is.
 * Pure arithmetic; internal/clock has the model.
 */
#ifndef NETNICE_LINE_H
#define NETNICE_LINE_H

#define NN_ATM_PAYLOAD 48
#define NN_ATM_CELL    53

static __always_inline __u64 nn_line_packet(const struct nn_node *n,
					    __u64 bytes)
{
	bytes += n->line_overhead;
	if (bytes < n->line_least)
		bytes = n->line_least;
	if (n->line_cells)
		bytes = (bytes + NN_ATM_PAYLOAD - 1) / NN_ATM_PAYLOAD *
			NN_ATM_CELL;
	return bytes;
}

/* Does it carry more than IP bytes? */
static __always_inline bool nn_line_adds(const struct nn_node *n)
{
	return n->line_overhead | n->line_least | n->line_cells;
}

/* With this bit the field segments of a transmit holds a number of packets,
 * instead of their size. */
#define NN_COUNTED (1U << 31)

static __always_inline __u32 nn_counted(__u32 packets)
{
	return packets | NN_COUNTED;
}

/* nn_line_bytes returns the bytes on the line for IP bytes. The packets have
 * the size, or the number, that segments holds, and the last one is shorter;
 * 0: it is one packet. */
static __always_inline __u64 nn_line_bytes(const struct nn_node *n, __u64 bytes,
					   __u32 segments)
{
	__u64 line = 0, rest = bytes;
	__u32 size = segments, packets = segments & ~NN_COUNTED;

	if (!nn_line_adds(n))
		return bytes;
	if (segments & NN_COUNTED)
		size = packets ? (bytes + packets - 1) / packets : 0;
	if (size) {
		line = bytes / size * nn_line_packet(n, size);
		rest = bytes % size;
	}
	return rest ? line + nn_line_packet(n, rest) : line;
}

#endif
