/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This cache keeps the nodes that were found for a peer. A lookup takes a step
 * in the trie for each bit at which prefixes part. A program that sends to many
 * addresses in turn would pay that at every datagram, and more the longer the
 * list.
 *
 * An entry is a cache line. Its index follows from the address and the other
 * inputs of the answer, and the last writer owns it. All processors read and
 * write it without a lock: its checksum reveals a write in between.
 *
 * An entry is valid for one epoch, which the user side changes after the rules.
 * The datapath reads the epoch before the rules. A result of former rules
 * therefore carries the former epoch, whenever it is written.
 */
#ifndef NETNICE_DESTINATION_MEMO_H
#define NETNICE_DESTINATION_MEMO_H

#include "path.h"

_Static_assert(NN_MAX_NODES <= 1 << 16, "nodes of a path are kept as 16 bits");
_Static_assert(NN_PATH_MAX == 8, "in two words");

/* Odd, so that one word that is another is never overlooked. */
#define NN_MEMO_1 0x9e3779b97f4a7c15ULL
#define NN_MEMO_2 0xbf58476d1ce4e5b9ULL
#define NN_MEMO_3 0x94d049bb133111ebULL
#define NN_MEMO_4 0xd6e8feb86659fd93ULL
#define NN_MEMO_5 0xa0761d6478bd642fULL
#define NN_MEMO_6 0xe7037ed1a0b428dbULL
#define NN_MEMO_7 0x8ebc6af09c88c6e3ULL

/* The inputs of the answer are copied from the socket once. Other threads may
 * send by the socket meanwhile, and the result for one peer would else be
 * stored for another. */
struct nn_asked {
	__u64 peer[2];
	union {
		__u64 path[2];
		__u16 node[NN_PATH_MAX]; /* the process's own nodes */
	};
	__u32 epoch;
	__u32 book; /* its user's rule set, or the administrator's if none */
	__u16 service_port;
	__u8 protocol;
	__u8 pad;
};

static __always_inline __u64 nn_asked_who(const struct nn_asked *a)
{
	return (__u64)a->book << 32 | a->epoch;
}

static __always_inline __u32 nn_asked_service(const struct nn_asked *a)
{
	return a->service_port | (__u32)a->protocol << 16;
}

/* Neighbours among addresses do not meet. */
static __always_inline void *nn_memo_place(const struct nn_asked *a)
{
	__u64 rest = a->peer[0] * NN_MEMO_1 + a->path[0] * NN_MEMO_3 +
		     a->path[1] * NN_MEMO_4 + nn_asked_who(a) * NN_MEMO_5 +
		     nn_asked_service(a) * NN_MEMO_6;
	__u32 at = bpf_ntohl(a->peer[1] >> 32) + (rest >> 32);

	at &= NN_DESTINATION_MEMOS - 1;
	return bpf_map_lookup_elem(&destination_memos, &at);
}

/* An empty place has none. */
static __always_inline __u64 nn_memo_sum(const struct nn_asked *a, __u64 nodes,
					 __u64 generations)
{
	return 1 + a->peer[0] * NN_MEMO_1 + a->peer[1] * NN_MEMO_2 +
	       a->path[0] * NN_MEMO_3 + a->path[1] * NN_MEMO_4 +
	       nn_asked_who(a) * NN_MEMO_5 +
	       (nn_asked_service(a) | nodes << 32) * NN_MEMO_6 +
	       generations * NN_MEMO_7;
}

/* Whether it is known what holds, and that. Not static, as nn_destination_find.
 */
__noinline int nn_memo_get(struct nn_asked *a, struct nn_hop *admin,
			   struct nn_hop *user)
{
	__u64 answer, generations;
	volatile const __u64 *w;

	if (!a || !admin || !user)
		return 0;
	w = nn_memo_place(a);
	if (!w || w[1] != a->peer[0] || w[2] != a->peer[1] ||
	    w[3] != a->path[0] || w[4] != a->path[1] || w[5] != nn_asked_who(a))
		return 0;
	answer = w[6];
	generations = w[7];
	if ((__u32)answer != nn_asked_service(a) ||
	    w[0] != nn_memo_sum(a, answer >> 32, generations))
		return 0;
	admin->node = answer >> 32 & 0xffff;
	admin->generation = generations;
	user->node = answer >> 48;
	user->generation = generations >> 32;
	return 1;
}

__noinline int nn_memo_put(struct nn_asked *a, struct nn_hop *admin,
			   struct nn_hop *user)
{
	__u64 nodes, generations;
	volatile __u64 *w;

	if (!a || !admin || !user)
		return 0;
	w = nn_memo_place(a);
	if (!w)
		return 0;
	nodes = admin->node | user->node << 16;
	generations = admin->generation | (__u64)user->generation << 32;
	w[1] = a->peer[0];
	w[2] = a->peer[1];
	w[3] = a->path[0];
	w[4] = a->path[1];
	w[5] = nn_asked_who(a);
	w[6] = nn_asked_service(a) | nodes << 32;
	w[7] = generations;
	w[0] = nn_memo_sum(a, nodes, generations);
	return 1;
}

#endif
