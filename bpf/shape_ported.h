/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file finds the owner of a received packet of UDP-Lite, SCTP or DCCP. No
 * helper looks their sockets up, so the ports of limited ones are noted once a
 * second. Of several sockets with one port it is the one that was noted last.
 */
#ifndef NETNICE_SHAPE_PORTED_H
#define NETNICE_SHAPE_PORTED_H

#include "shape_for.h"

static __always_inline bool nn_is_ported(__u32 protocol)
{
	return protocol == NN_IPPROTO_UDPLITE || protocol == NN_IPPROTO_SCTP ||
	       protocol == NN_IPPROTO_DCCP;
}

static __always_inline void nn_ported_note(struct sock *sk,
					   const struct nn_socket *s)
{
	struct nn_ports_seen *seen = nn_ports_seen();
	struct nn_ported_key k = {
		.protocol = sk->sk_protocol,
		.port = sk->__sk_common.skc_num,
		.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum),
	};
	struct nn_ported noted = {};

	if (!seen || !nn_is_ported(k.protocol) || !k.port || !s->path[0].node)
		return;
	noted.look = seen->look;
	noted.whose.child = s->child;
	for (int i = 0; i < NN_PATH_MAX; i++)
		noted.whose.hops[i] = s->path[i];
	bpf_map_update_elem(&ported, &k, &noted, BPF_ANY);
}

/* Not inline: the stack of the caller is full. */
static __noinline bool nn_ported_path(struct __sk_buff *skb,
				      struct nn_packet *p,
				      const struct nn_slot *slot,
				      struct nn_whose *path)
{
	struct nn_ports_seen *seen = nn_ports_seen();
	struct nn_ported_key k = {.protocol = p->protocol};
	struct nn_ported *noted;

	if (!seen || !nn_is_ported(p->protocol))
		return false;
	if (p->fragment_offset)
		return nn_path_kept(skb, p, slot, path);
	if (!nn_load(skb, p->offset, &p->ports, sizeof(p->ports)))
		return false;
	p->transport_bytes = sizeof(p->ports) + 4;
	k.port = bpf_ntohs(p->ports.destination);
	k.netns = slot ? slot->netns : nn_packet_netns(skb);
	noted = bpf_map_lookup_elem(&ported, &k);
	if (!noted || !nn_look_recent(seen, noted->look))
		return false;
	*path = noted->whose;
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
