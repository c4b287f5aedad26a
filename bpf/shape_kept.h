/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The paths that are kept for packets whose socket is not found by what they
 * carry: see struct nn_kept. The functions are not static, because the stacks
 * of their callers are full.
 */
#ifndef NETNICE_SHAPE_KEPT_H
#define NETNICE_SHAPE_KEPT_H

#include "frame.h"
#include "shape_packet.h"

/* slot: the device from which the packet came, NULL if it is there now. */
static __always_inline void nn_kept_key(struct __sk_buff *skb,
					const struct nn_packet *p,
					const struct nn_slot *slot,
					struct nn_kept *k)
{
	for (int i = 0; i < 4; i++) {
		k->source[i] = p->source[i];
		k->destination[i] = p->destination[i];
	}
	k->netns = slot ? slot->netns : nn_packet_netns(skb);
	if (p->fragment_offset || p->more) {
		k->id = p->fragment_id;
		/* IPv6 counts them for all protocols together */
		k->protocol = p->v6 ? 0 : p->protocol;
	} else {
		k->ports = p->ports;
		k->protocol = p->protocol;
	}
}

static const struct nn_whose nn_no_path = {};

__noinline int nn_path_store(struct __sk_buff *skb, const struct nn_packet *p,
			     const struct nn_slot *slot,
			     const struct nn_whose *path)
{
	struct nn_kept k = {};
	struct nn_whose *known;

	if (!p || !path)
		return 0;
	nn_kept_key(skb, p, slot, &k);
	/* before Linux 6.2 what is put into a map may not be an argument */
	bpf_map_update_elem(&kept, &k, &nn_no_path, BPF_NOEXIST);
	known = bpf_map_lookup_elem(&kept, &k);
	if (known)
		*known = *path;
	return 0;
}

/* 1: there is one. */
__noinline int nn_path_kept(struct __sk_buff *skb, const struct nn_packet *p,
			    const struct nn_slot *slot, struct nn_whose *path)
{
	struct nn_kept k = {};
	struct nn_whose *known;

	if (!p || !path)
		return 0;
	nn_kept_key(skb, p, slot, &k);
	known = bpf_map_lookup_elem(&kept, &k);
	if (!known)
		return 0;
	*path = *known;
	return 1;
}

#endif
