/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Whom a packet is for after the machine's own NAT, which comes after the hook
 * that sees it: connection tracking knows already. It is asked about packets of
 * no connected socket only. Linux 5.18, with connection tracking in use when
 * this is loaded; without, such a packet passes.
 */
#ifndef NETNICE_SHAPE_NAT_H
#define NETNICE_SHAPE_NAT_H

#include "kernel.h"

#define NN_NAT_CHANGED 0x30 /* of nf_conn.status: source, destination */

struct nf_conntrack_tuple;

struct nf_conntrack_tuple_hash {
	struct {
		__u32 unused;
	} tuple;
} __core;

struct nf_conn {
	struct nf_conntrack_tuple_hash tuplehash[2];
	unsigned long status;
} __core;

struct bpf_ct_opts {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	__u8 dir; /* the packet's direction */
	__u8 reserved[2];
};

/* An address and a port of each side, as connection tracking keeps them. */
struct nn_tracked {
	__u32 source[4];
	__be16 source_port;
	__u16 family;
	__u32 destination[4];
	__be16 destination_port;
	__u8 protocol, direction;
};
_Static_assert(sizeof(struct nn_tracked) == 40, "nf_conntrack_tuple");

struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *skb_ctx,
				  struct bpf_sock_tuple *bpf_tuple,
				  __u32 tuple__sz, struct bpf_ct_opts *opts,
				  __u32 opts__sz) __weak __ksym;
void bpf_ct_release(struct nf_conn *nfct) __weak __ksym;

/* Set by the user side before loading, if the kernel has those two. */
const volatile __u32 nat_known;

/* Find a received packet's addresses after NAT; false: NAT changes nothing. Not
 * inline, for its stack would come on top of the caller's. */
static __noinline bool nn_nat(struct __sk_buff *skb, __u32 protocol,
			      struct bpf_sock_tuple *t, __u32 size)
{
	struct bpf_ct_opts opts = {.netns_id = -1, .l4proto = protocol};
	struct nn_tracked other; /* addresses of the answer */
	struct nf_conn *ct;
	bool changed;
	long failed;

	if (!nat_known)
		return false;
	ct = bpf_skb_ct_lookup(skb, t, size, &opts, sizeof(opts));
	if (!ct)
		return false;
	changed = ct->status & NN_NAT_CHANGED;
	if (opts.dir)
		failed = bpf_core_read(&other, sizeof(other),
				       &ct->tuplehash[0].tuple);
	else
		failed = bpf_core_read(&other, sizeof(other),
				       &ct->tuplehash[1].tuple);
	bpf_ct_release(ct);
	if (!changed || failed)
		return false;
	if (size == sizeof(t->ipv6)) {
		for (int i = 0; i < 4; i++) {
			t->ipv6.saddr[i] = other.destination[i];
			t->ipv6.daddr[i] = other.source[i];
		}
		t->ipv6.sport = other.destination_port;
		t->ipv6.dport = other.source_port;
	} else {
		t->ipv4.saddr = other.destination[0];
		t->ipv4.daddr = other.source[0];
		t->ipv4.sport = other.destination_port;
		t->ipv4.dport = other.source_port;
	}
	return true;
}

#endif
