/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file finds the owner of a received packet of UDP-Lite, SCTP or DCCP by
 * its port: see port_owner.h.
 */
#ifndef NETNICE_SHAPE_PORTED_H
#define NETNICE_SHAPE_PORTED_H

#include "port_owner.h"
#include "shape_for.h"

/* Not inline: the stack of the caller is full. */
static __noinline bool nn_ported_path(struct __sk_buff *skb,
				      struct nn_packet *p,
				      const struct nn_slot *slot,
				      struct nn_whose *path)
{
	struct nn_ports_seen *seen = nn_ports_seen();
	struct nn_port_owner_key k = {.protocol = p->protocol};
	struct nn_port_owner *o;

	if (!seen || !nn_port_has_owner(p->protocol))
		return false;
	if (p->fragment_offset)
		return nn_path_kept(skb, p, slot, path);
	if (!nn_load(skb, p->offset, &p->ports, sizeof(p->ports)))
		return false;
	p->transport_bytes = sizeof(p->ports) + 4;
	k.port = bpf_ntohs(p->ports.destination);
	k.netns = slot ? slot->netns : nn_packet_netns(skb);
	o = bpf_map_lookup_elem(&port_owners, &k);
	if (!o || !nn_look_recent(seen, o->look))
		return false;
	path->child = o->child;
	for (int i = 0; i < NN_PATH_MAX; i++)
		path->hops[i] = o->path.hops[i];
	if (p->more) {
		struct nn_kept part = {};

		nn_kept_key(skb, p, slot, &part);
		bpf_map_update_elem(&kept, &part, path, BPF_ANY);
	}
	return true;
}

/* The path of a packet that is neither TCP's nor UDP's. */
static __always_inline bool nn_unusual_path(struct __sk_buff *skb,
					    struct nn_packet *p,
					    const struct nn_slot *slot,
					    struct nn_whose *path)
{
	return nn_ported_path(skb, p, slot, path) ||
	       nn_other_path(skb, p, path, slot);
}

#endif
