/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a program on packets reads of the kernel's own packet without calling
 * anything: a call and its return are 11 ns where returns are guarded, more
 * than all the rest that is done for a packet that no limit concerns.
 * Linux 6.2; before, helpers are called.
 */
#ifndef NETNICE_INSIDE_H
#define NETNICE_INSIDE_H

#include "kernel.h"

/* The verifier puts nothing in their place. */
void *bpf_cast_to_kern_ctx(void *obj) __weak __ksym;
void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __weak __ksym;

/* Set by the user side before loading, if the kernel has those two. */
const volatile __u32 inside_known;

/* Headers as the kernel's type information has them: protocols say where in
 * them a field is. */
struct iphdr {
	__u8 protocol;
} __core;

struct ipv6hdr {
	__u8 nexthdr;
} __core;

struct udphdr {
	__be16 dest;
} __core;

/* The packet is TCP's, or nobody keeps anything with its socket. (What stands
 * for a socket until a connection is there, or after it, is smaller. Reads
 * beyond its end are harmless, because it is TCP's in any case.) */
static __always_inline bool nn_sent_free(struct __sk_buff *skb)
{
	struct sk_buff *b;
	struct sock *sk;

	if (!inside_known)
		return false;
	b = bpf_cast_to_kern_ctx(skb);
	sk = b->sk;
	return sk && (!sk->sk_bpf_storage || sk->sk_protocol == IPPROTO_TCP);
}

/* Where the packet has its network header, if that many bytes of it are in one
 * piece; NULL = they are not. Reads there do not fault. */
static __always_inline void *nn_network_header(struct __sk_buff *skb,
					       __u32 bytes)
{
	struct sk_buff *b = bpf_cast_to_kern_ctx(skb);
	__u32 at = b->network_header;

	return at + bytes <= b->tail ? b->head + at : NULL;
}

#endif
