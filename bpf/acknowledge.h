/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Acknowledgements are charged and never wait. A program that receives far
 * faster than it may send would exceed its limit by them alone. While the class
 * of a socket is behind with its pay, this file leaves out acknowledgements
 * beyond an eighth of the class's share: the next one acknowledges that data,
 * too.
 */
#ifndef NETNICE_ACKNOWLEDGE_H
#define NETNICE_ACKNOWLEDGE_H

#include "charge.h"
#include "cover.h"

/* What has left is paid this much later, before acknowledgements are left
 * out. */
#define NN_ACK_BEHIND_NS 100000000ULL
/* The part of its class's share that a connection's acknowledgements have. */
#define NN_ACK_PART 8
/* There is one at least in this time: far less than a sender waits for it. */
#define NN_ACK_GAP_NS 40000000ULL
/* As many as are due in this time may leave at once. */
#define NN_ACK_BURST_NS 400000000ULL

/* TCP's flags ACK, ECE and CWR. */
#define NN_TCP_ACK 0x10
#define NN_TCP_ECE 0x40
#define NN_TCP_CWR 0x80

struct tcp_options_received___sacks {
	__u8 num_sacks;
} __core;

/* The field of a TCP socket that is used here beside those of kernel.h. */
struct tcp_sock___sacks {
	struct tcp_options_received___sacks rx_opt;
} __core;

/* nn_ack_idle tells whether an acknowledgement says only that new data came in
 * order. One without new data answers a repeated segment or opens the window,
 * and the sender waits for it. So does a sender whose window is nearly used up:
 * s->ack_edge is the window that it knows, since the kernel's own idea includes
 * acknowledgements that were left out. */
static __always_inline bool nn_ack_idle(const struct bpf_sock_ops *ctx,
					const struct nn_socket *s,
					const struct tcp_sock *tp)
{
	const struct tcp_sock___sacks *sacks = (const void *)tp;
	__s32 open = s->ack_edge - tp->rcv_nxt;

	if ((ctx->skb_tcp_flags & ~(NN_TCP_ECE | NN_TCP_CWR)) != NN_TCP_ACK ||
	    s->flags & NN_SOCK_SUBFLOW)
		return false;
	/* the other side still sends where this one has closed */
	if (ctx->state != TCP_ESTABLISHED && ctx->state != TCP_FIN_WAIT1 &&
	    ctx->state != TCP_FIN_WAIT2)
		return false;
	if (tp->rcv_nxt == tp->rcv_wup || sacks->rx_opt.num_sacks)
		return false;
	return open > 0 && (__u32)open > tp->rcv_wnd / 2;
}

/* nn_ack_spared tells whether an acknowledgement is left out. */
static __always_inline bool nn_ack_spared(const struct bpf_sock_ops *ctx,
					  struct nn_socket *s,
					  const struct tcp_sock *tp,
					  __u64 now_ns)
{
	if (s->ack_finish_ns <= now_ns + NN_ACK_BEHIND_NS ||
	    s->ack_next_ns <= now_ns + NN_ACK_BURST_NS)
		return false;
	return nn_ack_idle(ctx, s, tp) &&
	       nn_egress_sees(s, &tp->inet_conn.icsk_inet.sk);
}

/* nn_ack_left records an acknowledgement that leaves. The further the class is
 * behind, the longer it is until the next one. */
static __always_inline void nn_ack_left(struct nn_socket *s,
					const struct tcp_sock *tp,
					const struct nn_transmit *x)
{
	__u64 gap = 0, behind = x->unheld_ns;

	s->ack_finish_ns = behind;
	s->ack_edge = tp->rcv_wup + tp->rcv_wnd;
	behind = behind > x->now_ns ? behind - x->now_ns : 0;
	if (x->share && !(x->share >> 48))
		gap = x->wire_bytes * NN_ACK_PART * NN_NSEC_PER_SEC / x->share;
	if (behind > NN_ACK_BEHIND_NS)
		gap = gap * (behind >> 10) / (NN_ACK_BEHIND_NS >> 10);
	if (gap > NN_ACK_GAP_NS)
		gap = NN_ACK_GAP_NS;
	nn_later(&s->ack_next_ns, x->now_ns);
	s->ack_next_ns += gap;
}

#endif
