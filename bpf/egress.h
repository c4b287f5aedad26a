/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The egress hook sends deferred packets back to TCP, which keeps the data and
 * tries again while the program sees nothing. It also checks that every packet
 * that leaves was charged.
 */
#ifndef NETNICE_EGRESS_H
#define NETNICE_EGRESS_H

#include "answered.h"
#include "datagram.h"
#include "mptcp.h"
#include "packet_peer.h"
#include "pacing.h"
#include "port_owner.h"
#include "sent_by.h"

/* An acknowledgement with all its headers and options; a little data may be as
 * short. */
#define NN_ACK_MOST 140

enum nn_egress_verdict {
	NN_EGRESS_BACK = 0, /* TCP gets an error and keeps the data */
	NN_EGRESS_PASS = 1,
	NN_EGRESS_DROP = 2,    /* and the program is not told */
	NN_EGRESS_PASS_CN = 3, /* and TCP reduces its window */
};

/* nn_armed tells whether the callback is on. It is not on until the daemon has
 * armed the socket (see nn_socket_ask). */
static __always_inline bool nn_armed(const struct nn_socket *s)
{
	return s->flags & NN_SOCK_ARMED && !(s->flags & NN_SOCK_STATIC);
}

/* nn_tcp_packet holds the size of a TCP packet on the wire, and whether it has
 * data. */
struct nn_tcp_packet {
	__u64 wire_bytes;
	__u32 segments;
	bool data;
};

static __always_inline void nn_tcp_look(struct __sk_buff *skb,
					struct nn_tcp_packet *t)
{
	bool v6 = skb->protocol == bpf_htons(ETH_P_IPV6);
	__u32 headers = v6 ? 40 : 20;
	__u8 first = 0, offset = 0;

	if (!v6 && !bpf_skb_load_bytes(skb, 0, &first, 1))
		headers = (first & 0xf) * 4;
	/* behind extension headers it is some other byte */
	if (!bpf_skb_load_bytes(skb, headers + 12, &offset, 1) &&
	    offset >= 0x50)
		headers += (offset >> 4) * 4;
	else
		headers += 20;
	t->segments = nn_packet_segments(skb);
	t->wire_bytes = skb->len + (__u64)(t->segments - 1) * headers;
	t->data = skb->len > headers;
}

/* nn_syn_hold tells whether a SYN has to wait. TCP repeats it after a second,
 * and doubles the time, so the SYN should not wait longer. The SYN goes
 * back while deferred chunks wait for more than a second's worth of departures,
 * or while the bytes that have left are paid only in a second. Programs that
 * send for the first time wait until they are fewer, because their number makes
 * each of them wait. */
static __always_inline bool nn_syn_hold(struct nn_socket *s,
					const struct nn_transmit *x)
{
	__u64 second_ns = x->now_ns + NN_NSEC_PER_SEC;

	if (x->crowd_ns > second_ns || x->unheld_ns > second_ns)
		return true;
	if (s->flags & NN_SOCK_REFUSED || x->reserved_ns <= NN_NSEC_PER_SEC)
		return false;
	s->flags |= NN_SOCK_REFUSED;
	return true;
}

/* The same of a SYN that was charged: the socket had another connection. */
static __noinline bool nn_syn_back(struct nn_socket *s)
{
	struct nn_transmit x = {
		.now_ns = bpf_ktime_get_ns(),
		.empty = 1,
	};

	x.loopback = s->flags & NN_SOCK_LOOPBACK;
	nn_path_walk(s, &x, NN_ASK);
	return nn_syn_hold(s, &x);
}

/* This looks at a packet of a limited connection, and notes whether the
 * connection stays on this machine. What the kernel's answer to it may send
 * elsewhere is charged in its place. */
static __noinline void nn_tcp_measure(struct __sk_buff *skb,
				      struct nn_socket *s,
				      struct nn_tcp_packet *t)
{
	bool here = nn_here(skb);
	__u64 answered = here ? nn_answered_bytes(skb, false) : 0;

	nn_tcp_look(skb, t);
	if (answered)
		t->wire_bytes = answered;
	if (here && !answered) {
		s->flags |= NN_SOCK_LOOPBACK;
	} else if (s->flags & NN_SOCK_LOOPBACK) {
		/* it was charged as local traffic: mostly not at all */
		s->flags &= ~NN_SOCK_LOOPBACK;
		s->unsettled_bytes = 0;
	}
}

/* nn_here_judge charges a connection that no callback charges, or a segment
 * that no callback has charged. The packet goes back to TCP while its departure
 * time has not come. */
static __noinline int nn_here_judge(struct __sk_buff *skb, __u32 state,
				    struct nn_socket *s,
				    const struct nn_tcp_packet *t)
{
	bool armed = nn_armed(s);
	struct nn_transmit x = {
		.now_ns = bpf_ktime_get_ns(),
		.loopback = s->flags & NN_SOCK_LOOPBACK,
		.empty = 1,
		.slack_ns = s->flags & NN_SOCK_STATIC ? NN_HOLD_NS : NN_IDLE_NS,
	};
	__u32 event = NN_EVENT_HELD;

	/* The deferred chunk was reserved when there was room for the callback.
	 * A segment without data (a reset) is no part of that chunk. */
	if (armed && t->data && s->prepaid_bytes && s->unsettled_bytes < 0) {
		s->unsettled_bytes += s->prepaid_bytes;
		if (s->due_ns) /* else a part of it has left */
			nn_held_leaves(s, &x);
		nn_prepaid_use(s, &x, s->prepaid_bytes);
		if (s->unsettled_bytes >= 0)
			return NN_EGRESS_PASS;
	}
	x.wire_bytes = armed ? -s->unsettled_bytes : t->wire_bytes;
	nn_path_walk(s, &x, NN_ASK);
	if (t->data && nn_far(&x, x.before_ns)) {
		if (armed) { /* the daemon has it try again in time */
			s->unsettled_bytes += t->wire_bytes;
			s->due_ns = x.before_ns - NN_IDLE_NS / 2;
			s->held_ns = x.now_ns;
			s->limit_bytes_per_sec = x.limit;
			s->ahead_ns = NN_HOLD_NS;
			nn_held_count(s);
			bpf_ringbuf_output(&events, &event, sizeof(event), 0);
		}
		return NN_EGRESS_BACK;
	}
	if (state == TCP_SYN_SENT && nn_syn_hold(s, &x)) {
		if (armed)
			s->unsettled_bytes += t->wire_bytes;
		return NN_EGRESS_BACK;
	}
	x.segments = nn_counted(t->segments);
	nn_path_walk(s, &x, NN_CHARGE);
	nn_unknown_sent(s, &x, x.wire_bytes, t->segments);
	if (!armed)
		return NN_EGRESS_PASS;
	s->unsettled_bytes = 0;
	if (t->data) {
		s->due_ns = 0;
		s->flags |= NN_SOCK_UNHEARD;
		s->limit_bytes_per_sec = x.limit;
		s->share_bytes_per_sec = x.share;
		if (x.next_ns > x.now_ns)
			s->share_bytes_per_sec = t->wire_bytes *
						 NN_NSEC_PER_SEC /
						 (x.next_ns - x.now_ns);
	}
	return NN_EGRESS_PASS;
}

/* The callback of an armed connection has charged the segment that leaves,
 * unless TCP left no room for options: then TCP did not call it. Bytes that the
 * callback could not know (other options than usual) are charged with the next
 * segment. */
static __always_inline bool nn_settle(struct nn_socket *s,
				      const struct nn_tcp_packet *t)
{
	s->unsettled_bytes -= t->wire_bytes;
	return s->unsettled_bytes + (__s64)(t->wire_bytes / 2) >= 0;
}

/* nn_other_look records what a packet reveals about its socket. It returns the
 * packet's IP bytes. */
static __noinline __u64 nn_other_look(struct __sk_buff *skb,
				      struct nn_socket *s, __u32 protocol)
{
	__u64 bytes = nn_datagram_bytes(skb, 0);
	struct bpf_sock *sk = skb->sk;

	if (sk) { /* it may have got its port just now */
		nn_port_of(s, sk->src_port);
		if (nn_port_has_owner(protocol) && !nn_here(skb))
			nn_port_owner_sends(skb, s, protocol, sk->src_port);
	}
	nn_hooked_note(skb, s);
	nn_datagram_wanted(s, bytes);
	return bytes;
}

/* Not inline: its stack is not on that of connections. */
static __noinline int nn_other_judge(struct __sk_buff *skb, struct nn_socket *s,
				     __u64 bytes, __u64 answered)
{
	return nn_datagram_judge(skb, s, bytes, answered) ? NN_EGRESS_PASS
							  : NN_EGRESS_DROP;
}

/* This socket has no path. While the machine has a limit, the socket of every
 * process has a path. This socket therefore is the kernel's own, which answers
 * pings and packets for no socket. Its packet passes. */
static __always_inline void nn_kernel_sent(struct __sk_buff *skb)
{
	if (!nn_here(skb) && nn_host_limited())
		nn_unknown(NN_UNKNOWN_SENT_KERNEL, skb->len, 1);
}

/* No node limits this socket, as far as is known. */
static __always_inline int nn_unlimited_sent(struct __sk_buff *skb, void *sk,
					     const struct nn_socket *s)
{
	if (s)
		return NN_EGRESS_PASS;
	if (nn_stateless_any() && nn_stateless_lost(sk))
		return NN_EGRESS_BACK;
	nn_kernel_sent(skb);
	return NN_EGRESS_PASS;
}

/* An acknowledgement of a connection that nobody limited has used so far, which
 * a process sends as it reads: so does one that has accepted the connection by
 * a listener of another's. While a call has the connection it sends for none
 * but that. */
static __always_inline bool nn_reader_may_be_limited(struct __sk_buff *skb,
						     const struct nn_socket *s)
{
	struct sock *sk;

	if (skb->len > NN_ACK_MOST)
		return false;
	sk = nn_packet_sock(skb);
	return sk && BPF_CORE_READ(sk, sk_lock.owned) && nn_another_sends(s);
}

/* The state of such a connection: it is the calling process's from now on. */
static __noinline struct nn_socket *nn_read_by_caller(struct __sk_buff *skb,
						      struct bpf_sock *sk,
						      struct nn_socket *s)
{
	s = nn_sent_by_caller(skb, sk, s);
	if (s) {
		nn_port_of(s, sk->src_port);
		nn_socket_ask(s);
	}
	return s;
}

/* The egress hook sends a deferred transmit back to TCP, which keeps the data
 * and tries again (the program sees nothing). The hook also sees the device of
 * a packet and, where it may look at tasks, the sender of non-TCP traffic. */
static __always_inline int nn_egress_judge(struct __sk_buff *skb, bool users)
{
	struct bpf_sock *sk = skb->sk;
	struct bpf_tcp_sock *tp;
	struct nn_tcp_packet t;
	struct nn_socket *s;
	bool limited;

	/* One look ends the work for packets that no limit concerns. */
	if (!sk)
		return NN_EGRESS_PASS;
	s = nn_state_of(sk);
	if (s)
		nn_packet_destined(skb, sk, s);
	nn_sends_by(skb, s);
	limited = s && nn_socket_limited(s);
	if (!limited && !users)
		return nn_unlimited_sent(skb, sk, s);
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return NN_EGRESS_PASS;
	if (sk->protocol != IPPROTO_TCP) {
		if (users && nn_another_sends(s)) {
			s = nn_sent_by_caller(skb, sk, s);
			nn_sends_by(skb, s); /* its state may be new */
		}
		if (!s || !nn_socket_limited(s))
			return nn_unlimited_sent(skb, sk, s);
		return nn_other_judge(
			skb, s, nn_other_look(skb, s, sk->protocol),
			nn_answered_bytes(skb, sk->type == SOCK_RAW));
	}
	if (users && nn_subflow_of_another(skb, s)) {
		nn_tcp_look(skb, &t);
		if (t.data) /* a reader sends acknowledgements alone */
			s = nn_subflow_sent_by_caller(skb, sk, s);
		limited = s && nn_socket_limited(s);
	}
	if (users && !limited && nn_reader_may_be_limited(skb, s)) {
		s = nn_read_by_caller(skb, sk, s);
		limited = s && nn_socket_limited(s);
	}
	if (!limited)
		return nn_unlimited_sent(skb, sk, s);
	nn_tcp_measure(skb, s, &t);
	if (!nn_armed(s))
		return nn_here_judge(skb, sk->state, s, &t);
	if (s->flags & NN_SOCK_HOLD) {
		s->flags &= ~NN_SOCK_HOLD;
		nn_held_count(s);
		return NN_EGRESS_BACK;
	}
	if (!nn_settle(s, &t))
		return nn_here_judge(skb, sk->state, s, &t);
	if (sk->state == TCP_SYN_SENT && nn_syn_back(s)) {
		s->unsettled_bytes += t.wire_bytes;
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
