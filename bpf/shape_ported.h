/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file finds the owner of a received packet of UDP-Lite, SCTP or DCCP by
 * its port: see port_owner.h.
 */
#ifndef NETNICE_SHAPE_PORTED_H
#define NETNICE_SHAPE_PORTED_H

#include "port_owner.h"
#include "shape_owner.h"
#include "shape_other.h"

/* The owner of the packet's port at its address, else at any. */
static __always_inline struct nn_port_owner *nn_ported_owner(
	struct __sk_buff *skb, const struct nn_packet *p,
	const struct nn_slot *slot)
{
	struct nn_port_owner_key k = {.protocol = p->protocol, .v6 = p->v6};
	struct nn_ports_seen *seen = nn_ports_seen();
	struct nn_port_owner *o;

	if (!seen)
		return NULL;
	k.port = bpf_ntohs(p->ports.destination);
	k.netns = slot ? slot->netns : nn_packet_netns(skb);
	__builtin_memcpy(k.address, p->destination, sizeof(k.address));
	o = bpf_map_lookup_elem(&port_owners, &k);
	if (!o || !nn_look_recent(seen, o->look)) {
		__builtin_memset(k.address, 0, sizeof(k.address));
		o = bpf_map_lookup_elem(&port_owners, &k);
	}
	return o && nn_look_recent(seen, o->look) ? o : NULL;
}

/* Not inline: the stack of the caller is full. */
static __noinline bool nn_ported_path(struct __sk_buff *skb,
				      struct nn_packet *p,
				      const struct nn_slot *slot,
				      struct nn_whose *path)
{
	struct nn_port_owner *o;

	if (!nn_port_has_owner(p->protocol))
		return false;
	if (p->fragment_offset)
		return nn_path_kept(skb, p, slot, path);
	if (!nn_load(skb, p->offset, &p->ports, sizeof(p->ports)) ||
	    nn_for_group(skb, p))
		return false;
	p->transport_bytes = sizeof(p->ports) + 4;
	o = nn_ported_owner(skb, p, slot);
	if (!o || (!slot && !nn_is_local(skb, p)))
		return false;
	path->child = o->child;
	for (int i = 0; i < NN_PATH_MAX; i++)
		path->hops[i] = o->path.hops[i];
	if (p->more)
		nn_path_store(skb, p, slot, path);
	return true;
}

/* Everybody's limit on what comes from that host holds beside the socket's. Not
 * inline, as above. */
static __noinline void nn_ported_from(struct nn_packet *p,
				      struct nn_whose *path)
{
	struct nn_policy *policy = nn_policy();
	struct nn_hop from = {};

	if (!policy || !(policy->destinations & NN_DESTINATIONS_DOWN) ||
	    !nn_other_from(p, &from))
		return;
	for (int i = 0; i < NN_PATH_MAX; i++) {
		if (path->hops[i].node == from.node)
			return;
		if (!path->hops[i].node) {
			path->hops[i] = from;
			return;
		}
	}
}

/* The path of a packet that is neither TCP's nor UDP's. */
static __always_inline bool nn_unusual_path(struct __sk_buff *skb,
					    struct nn_packet *p,
					    const struct nn_slot *slot,
					    struct nn_whose *path)
{
	if (!nn_ported_path(skb, p, slot, path))
		return nn_other_path(skb, p, path, slot);
	nn_ported_from(p, path);
	return true;
}

#endif
