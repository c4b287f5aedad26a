/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file reports the sockets with packets in a queue. The user side keeps
 * their send buffers in proportion to the rate that they may send at, because
 * the bytes in a buffer wait.
 */
#ifndef NETNICE_SEND_BUFFER_H
#define NETNICE_SEND_BUFFER_H

#include "datagram.h"

/* No datagram is larger. */
#define NN_DATAGRAM_MOST 65535

/* A packet is dropped before it has a device: the parts that there are of a
 * datagram of which the next does not fit in its socket's buffer. Had that been
 * made small, the next datagram shall fit. */
static __always_inline void nn_datagram_given_up(struct sk_buff *skb)
{
	struct sock *sk = skb->sk;
	struct nn_buffer *b;

	if (skb->dev || !sk)
		return;
	b = bpf_sk_storage_get(&buffers, sk, 0, 0);
	if (b && b->own_bytes)
		nn_datagram_wanted(bpf_sk_storage_get(&sockets, sk, 0, 0),
				   NN_DATAGRAM_MOST);
}

/* nn_buffer_child returns the child at the clocks beyond a node. It is not
 * static, so that the verifier checks it once. */
__noinline __u64 nn_buffer_child(__u64 child, __u32 node)
{
	struct nn_node *n = bpf_map_lookup_elem(&nodes, &node);

	if (!n ||
	    nn_part_of_program(
		    n, n->limits[NN_OWNER_ADMIN][NN_UP].min_bytes_per_sec))
		return child;
	return nn_child_node(node, n->generation);
}

static __always_inline void nn_buffer_record(struct seq_file *seq,
					     struct sock *sk,
					     struct nn_socket *s)
{
	struct nn_buffer *b = bpf_sk_storage_get(&buffers, sk, 0, 0);
	struct nn_buffer_record r = {};
	__u64 child = s->child;

	if (b)
		r.own_bytes = b->own_bytes;
	if (!r.own_bytes && (__s32)s->queued_packets <= 0)
		return;
	r.inode = BPF_CORE_READ(sk, sk_socket, file, f_inode, i_ino);
	r.tgid = s->tgid;
	r.netns = sk->__sk_common.skc_net.net->ns.inum;
	r.size_bytes = sk->sk_sndbuf;
	r.used_bytes = sk->sk_wmem_alloc.refs.counter - 1;
	r.queued_bytes = s->queued_bytes;
	r.largest_bytes = s->largest_bytes;
	r.locked = BPF_CORE_READ(sk, sk_lock.owned);
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		__u32 node = s->path[i].node;
		struct nn_node *n;

		if (!node)
			break;
		n = nn_node_get(node, s->path[i].generation);
		if (!n)
			continue;
		r.hops[i].child = child;
		r.hops[i].node = node;
		child = nn_buffer_child(child, node);
	}
	bpf_seq_write(seq, &r, sizeof(r));
}

#endif
