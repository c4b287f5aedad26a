/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file marks the local ports of limited sockets: TCP segments for other
 * ports need no socket lookup (of UDP see nn_udp_free). A port is marked with
 * the number of the look in which one was seen: when a socket is found limited,
 * or a limited one gets its port, and once a second by the iterator over all.
 * Two looks later it counts no more. The iterator does not see sockets without
 * state: their ports stay marked. Namespaces are not told apart: a port too
 * many costs a search.
 */
#ifndef NETNICE_PORTS_H
#define NETNICE_PORTS_H

#include "maps.h"

#define NN_LOOKS       254U /* are numbered from 1 on */
#define NN_PORT_MARKED 255  /* for ever */

static __always_inline struct nn_ports_seen *nn_ports_seen(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&ports_seen, &zero);
}

static __always_inline void nn_port_mark(__u32 port, bool for_ever)
{
	struct nn_ports_seen *seen;
	__u8 *mark;

	if (!port || port >= NN_PORTS)
		return;
	seen = nn_ports_seen();
	asm volatile("" : "+r"(port)); /* as below */
	if (!seen)
		return;
	mark = &seen->in_look[port & (NN_PORTS - 1)];
	if (for_ever)
		*mark = NN_PORT_MARKED;
	else if (*mark != NN_PORT_MARKED)
		*mark = seen->look;
}

static __always_inline void nn_port_limited(__u32 port)
{
	nn_port_mark(port, false);
}

/* The look that begins now. */
static __always_inline void nn_ports_look(void)
{
	struct nn_ports_seen *seen = nn_ports_seen();

	if (seen)
		seen->look = seen->look % NN_LOOKS + 1;
}

/* Was this look the present one or the one before? The last number comes before
 * 1. */
static __always_inline bool nn_look_recent(const struct nn_ports_seen *seen,
					   __u8 look)
{
	return look == seen->look ||
	       look == (seen->look > 1 ? seen->look - 1 : NN_LOOKS);
}

/* No limited socket has this port. */
static __always_inline bool nn_port_free(__u32 port)
{
	struct nn_ports_seen *seen = nn_ports_seen();
	__u8 mark;

	if (!seen)
		return false;
	/* Kernels before 6.4 or so do not see that a swap of 16 bits has no
	 * more: without this the compiler, that does, drops the bound. */
	asm volatile("" : "+r"(port));
	mark = seen->in_look[port & (NN_PORTS - 1)];
	return mark != NN_PORT_MARKED && !nn_look_recent(seen, mark);
}

#endif
