/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The egress hook: what has to go back to TCP, which keeps the data and tries
 * again while the program sees nothing.
 */
#ifndef NETNICE_EGRESS_H
#define NETNICE_EGRESS_H

#include "datagram.h"
#include "packet_peer.h"
#include "pacing.h"
#include "sent_by.h"

enum nn_egress_verdict {
	NN_EGRESS_BACK = 0, /* TCP gets an error and keeps the data */
	NN_EGRESS_PASS = 1,
	NN_EGRESS_DROP = 2,    /* and the program is not told */
	NN_EGRESS_PASS_CN = 3, /* and TCP reduces its window */
};

/* A connection that no callback charges: it is charged here, and goes back to
 * TCP while its fixed part of the limit turns out to be too much. */
static __always_inline int nn_static_judge(struct __sk_buff *skb, __u32 state,
					   struct nn_socket *s)
{
	__u32 headers = s->flags & NN_SOCK_V6 ? 72 : 52;
	struct nn_transmit x = {
		.now_ns = bpf_ktime_get_ns(),
		.loopback = s->flags & NN_SOCK_LOOPBACK,
		.empty = 1,
		.slack_ns = s->flags & NN_SOCK_STATIC ? NN_HOLD_NS : NN_IDLE_NS,
		.wire_bytes = skb->len,
	};

	nn_path_walk(s, &x, NN_ASK);
	if (skb->len > headers + 40 && nn_far(&x, x.before_ns))
		return NN_EGRESS_BACK;
	/* While connections wait for more than a second's worth of turns, a
	 * further one waits for a second, after which TCP repeats the SYN; not
	 * longer, since TCP doubles the time. Programs that send for the first
	 * time wait until they are fewer, for their number is what makes each
	 * wait. */
	if (state == TCP_SYN_SENT) {
		if (x.crowd_ns > x.now_ns + NN_NSEC_PER_SEC)
			return NN_EGRESS_BACK;
		if (!(s->flags & NN_SOCK_REFUSED) &&
		    x.reserved_ns > NN_NSEC_PER_SEC) {
			s->flags |= NN_SOCK_REFUSED;
			return NN_EGRESS_BACK;
		}
	}
	if (skb->gso_segs > 1) {
		x.wire_bytes += (skb->gso_segs - 1) * headers;
		x.segments = nn_counted(skb->gso_segs);
	}
	nn_path_walk(s, &x, NN_CHARGE);
	nn_unknown_sent(s, &x, x.wire_bytes,
			skb->gso_segs > 1 ? skb->gso_segs : 1);
	return NN_EGRESS_PASS;
}

/* A socket without a path. While a limit stands on the machine every process's
 * has one: it is the kernel's own, which answers pings and what comes for no
 * socket. It is let go. */
static __always_inline void nn_kernel_sent(struct __sk_buff *skb)
{
	if (skb->ifindex != LOOPBACK_IFINDEX && nn_host_limited())
		nn_unknown(NN_UNKNOWN_SENT_KERNEL, skb->len, 1);
}

static __always_inline int nn_unlimited_sent(struct __sk_buff *skb,
					     const struct nn_socket *s)
{
	if (!s)
		nn_kernel_sent(skb);
	return NN_EGRESS_PASS;
}

/* The egress hook: send a held transmit back to TCP, which keeps the data and
 * tries again (the program sees nothing). Also sees which device is used, and,
 * where the hook may look at tasks, who sends what is no TCP. */
static __always_inline int nn_egress_judge(struct __sk_buff *skb, bool users)
{
	struct bpf_sock *sk = skb->sk;
	struct bpf_tcp_sock *tp;
	struct nn_socket *s;
	bool limited;

	/* One look first that ends it for all that no limit concerns. */
	if (!sk)
		return NN_EGRESS_PASS;
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (s)
		nn_packet_destined(skb, sk, s);
	nn_sends_by(skb, s);
	limited = s && nn_socket_limited(s);
	if (!limited && !users)
		return nn_unlimited_sent(skb, s);
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return NN_EGRESS_PASS;
	if (sk->protocol != IPPROTO_TCP) {
		if (users && nn_another_sends(s)) {
			s = nn_sent_by_caller(skb, sk, s);
			nn_sends_by(skb, s); /* which it may have now only */
		}
		if (!s || !nn_socket_limited(s))
			return nn_unlimited_sent(skb, s);
		return nn_datagram_judge(skb, s) ? NN_EGRESS_PASS
						 : NN_EGRESS_DROP;
	}
	if (!limited)
		return nn_unlimited_sent(skb, s);
	if (skb->ifindex == LOOPBACK_IFINDEX)
		s->flags |= NN_SOCK_LOOPBACK;
	/* not armed: nobody has looked after it yet (see nn_socket_ask) */
	if (s->flags & NN_SOCK_STATIC || !(s->flags & NN_SOCK_ARMED))
		return nn_static_judge(skb, sk->state, s);
	if (s->flags & NN_SOCK_HOLD) {
		s->flags &= ~NN_SOCK_HOLD;
		nn_held_count(s);
		return NN_EGRESS_BACK;
	}
	/* An adopted connection's window may be far above the clamp, which TCP
	 * looks at only while it grows the window: ask for a reduction. */
	tp = bpf_tcp_sock(sk);
	if (tp && nn_window_exceeds(tp->snd_cwnd, s->clamp_segments))
		return NN_EGRESS_PASS_CN;
	return NN_EGRESS_PASS;
}

#endif
