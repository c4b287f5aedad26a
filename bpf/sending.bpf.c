// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* This file lists every hook of the queue for non-TCP egress. They are attached
 * while limited programs send more non-TCP traffic than their share. The
 * headers hold the logic. Nodes, owners and clocks are those of
 * netnice.bpf.c. */
#include "kernel.h"
#include "each_socket.h"
#include "send_buffer.h"
#include "send_steer.h"

char LICENSE[] SEC("license")
= "Dual BSD/GPL";

/* These variables keep the types in the object's type information, from which
 * bpf2go makes the Go side. */
enum nn_send_fault *nn_keep_send_fault __attribute__((unused));
struct nn_buffer_record *nn_keep_buffer_record __attribute__((unused));

SEC("tc")
int nn_send_out(struct __sk_buff *skb)
{
	return nn_send_leaving(skb);
}

SEC("tc")
int nn_send_back(struct __sk_buff *skb)
{
	return nn_send_released(skb);
}

/* The kernel drops a packet. This hook is attached while netnice keeps the send
 * buffer of some socket small. */
SEC("tp_btf/kfree_skb")
int BPF_PROG(nn_send_short, struct sk_buff *skb)
{
	nn_datagram_given_up(skb);
	return 0;
}

/* The user side runs this iterator: it lists the sockets that have packets in
 * the queue. */
static __always_inline void nn_list_buffer(struct bpf_iter_meta *meta,
					   struct sock *sk, struct nn_socket *s)
{
	if (nn_sends_datagrams(sk))
		nn_buffer_record(meta->seq, sk, s);
}
NN_EACH_SOCKET(list_buffers, sockets, nn_list_buffer)
