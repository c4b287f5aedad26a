/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file notes who owns the ports of UDP-Lite, SCTP and DCCP, whose sockets
 * no helper looks up. The iterator over all sockets does so once a second, and
 * the egress hook as a socket sends. Of several sockets with one port it is the
 * one that was noted last.
 */
#ifndef NETNICE_PORT_OWNER_H
#define NETNICE_PORT_OWNER_H

#include "ports.h"

static __always_inline bool nn_port_has_owner(__u32 protocol)
{
	return protocol == NN_IPPROTO_UDPLITE || protocol == NN_IPPROTO_SCTP ||
	       protocol == NN_IPPROTO_DCCP;
}

/* Not inline: an owner does not fit on the stack of the caller. */
static __noinline __attribute__((unused)) void nn_port_owner_note(
	const struct nn_socket *s, __u32 protocol, __u32 port, __u32 netns)
{
	struct nn_port_owner_key k = {
		.netns = netns, .port = port, .protocol = protocol};
	struct nn_ports_seen *seen = nn_ports_seen();
	struct nn_port_owner o = {};

	if (!seen || !port || !s->path[0].node)
		return;
	o.look = seen->look;
	o.child = s->child;
	for (int i = 0; i < NN_PATH_MAX; i++)
		o.path.hops[i] = s->path[i];
	bpf_map_update_elem(&port_owners, &k, &o, BPF_ANY);
}

#endif
