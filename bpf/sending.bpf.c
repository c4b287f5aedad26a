// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Every hook of the queue for what is sent and is no TCP, attached while
 * limited programs send more of it than their share. The logic is in the
 * headers; nodes, owners and clocks are those of netnice.bpf.c. */
#include "kernel.h"
#include "each_socket.h"
#include "send_buffer.h"
#include "send_steer.h"

char LICENSE[] SEC("license")
= "Dual BSD/GPL";

/* Keeps the enum in the object's type information, for the Go side. */
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

/* A packet is dropped. Attached while some socket's buffer is small. */
SEC("tp_btf/kfree_skb")
int BPF_PROG(nn_send_short, struct sk_buff *skb)
{
	nn_datagram_given_up(skb);
	return 0;
}

/* Run by the user side: sockets of which something waits. */
static __always_inline void nn_list_buffer(struct bpf_iter_meta *meta,
					   struct sock *sk, struct nn_socket *s)
{
	if (nn_sends_datagrams(sk))
		nn_buffer_record(meta->seq, sk, s);
}
NN_EACH_SOCKET(list_buffers, sockets, nn_list_buffer)
