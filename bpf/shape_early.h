/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Parts of a datagram that come before its first: nobody knows yet for whom
 * they are. They pass, and their bytes are charged with the first part, which
 * completes the datagram.
 */
#ifndef NETNICE_SHAPE_EARLY_H
#define NETNICE_SHAPE_EARLY_H

#include "shape_kept.h"

/* A packet that is for nobody known passes. Not static, as the next: the stack
 * of the caller is full. */
__noinline int nn_early_note(struct __sk_buff *skb, const struct nn_packet *p)
{
	struct nn_kept k = {};
	__u64 *before, bytes;

	if (!p || !p->fragment_offset)
		return TC_ACT_UNSPEC;
	bytes = p->ip_bytes;
	nn_kept_key(skb, p, NULL, &k);
	if (!bpf_map_update_elem(&early, &k, &bytes, BPF_NOEXIST))
		return TC_ACT_UNSPEC;
	before = bpf_map_lookup_elem(&early, &k);
	if (before)
		__sync_fetch_and_add(before, bytes);
	return TC_ACT_UNSPEC;
}

/* The bytes that came before a packet, if it is a first part; they are asked
 * for once. */
__noinline __u32 nn_early_bytes(struct __sk_buff *skb,
				const struct nn_packet *p)
{
	struct nn_kept k = {};
	__u64 *before;
	__u32 bytes;

	if (!p || !p->more || p->fragment_offset)
		return 0;
	nn_kept_key(skb, p, NULL, &k);
	before = bpf_map_lookup_elem(&early, &k);
	if (!before)
		return 0;
	bytes = *before;
	bpf_map_delete_elem(&early, &k);
	return bytes;
}

#endif
