/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file writes the record of a socket that an iterator lists.
 */
#ifndef NETNICE_SOCKET_RECORD_H
#define NETNICE_SOCKET_RECORD_H

#include "pacing.h"

/* Arguments of the iterators, set before each run. */
__u32 list_node;   /* only sockets on whose path it is, 0 = all */
__u32 list_others; /* sockets that are no TCP's, too */

static __always_inline bool nn_path_has(const struct nn_socket *s, __u32 node)
{
	for (__u32 i = 0; i < NN_PATH_MAX; i++)
		if (s->path[i].node == node)
			return true;
	return false;
}

/* Like the kernel's own count: more than was promised may have come. */
static __always_inline __u32 nn_receive_window_left(const struct tcp_sock *tp)
{
	__s32 left = tp->rcv_wup + tp->rcv_wnd - tp->rcv_nxt;

	return left < 0 ? 0 : left;
}

#define NN_IN_USE_US 1000000 /* since a connection's last segment */

/* nn_socket_record writes a socket's record for `netnice ls` and the user
 * side. */
static __always_inline void nn_socket_record(struct seq_file *seq,
					     struct sock *sk,
					     struct nn_socket *s)
{
	struct nn_socket_seen r = {};
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct nn_policy *p = nn_policy();
	struct cgroup *g;

	r.protocol = sk->sk_protocol;
	if (!tp && r.protocol != IPPROTO_MPTCP && !list_others &&
	    (r.protocol != IPPROTO_UDP ||
	     (!s->rate_bytes_per_sec && !s->receive_bytes_per_sec &&
	      !s->reserve_asked)))
		return;
	r.inode = BPF_CORE_READ(sk, sk_socket, file, f_inode, i_ino);
	r.cookie = bpf_get_socket_cookie(sk);
	r.time_ns = bpf_ktime_get_ns();
	r.family = sk->__sk_common.skc_family;
	r.tcp_state = sk->__sk_common.skc_state;
	r.local_port = sk->__sk_common.skc_num;
	r.remote_port = bpf_ntohs(sk->__sk_common.skc_dport);
	r.netns = sk->__sk_common.skc_net.net->ns.inum;
	g = nn_sock_cgroup(sk);
	r.cgroup = nn_cgroup_id(g);
	r.stray = p && p->cover && !nn_cgroup_within(g, p->cover);
	if (r.family == AF_INET6) {
		BPF_CORE_READ_INTO(&r.local, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&r.remote, sk, __sk_common.skc_v6_daddr);
	} else {
		*(__u32 *)r.local = sk->__sk_common.skc_rcv_saddr;
		*(__u32 *)r.remote = sk->__sk_common.skc_daddr;
	}
	if (tp) {
		if (r.tcp_state != TCP_LISTEN &&
		    r.time_ns / 1000 < tp->tcp_mstamp + NN_IN_USE_US)
			r.promised_bytes = nn_receive_window_left(tp);
		r.queued_bytes = tp->write_seq - tp->snd_una;
		r.unsent_bytes = tp->write_seq - tp->snd_nxt;
		r.sent_bytes = tp->bytes_sent +
			       (__u64)tp->segs_out * nn_headers(s, tp);
		r.received_bytes = tp->bytes_received +
				   (__u64)tp->segs_in * nn_headers(s, tp);
		r.armed = (tp->bpf_sock_ops_cb_flags & NN_CALLBACKS) ==
			  NN_CALLBACKS;
	}
	/* in two: the stack has no room for all of it */
	bpf_seq_write(seq, s, sizeof(*s));
	bpf_seq_write(seq, &r, sizeof(r));
}

#endif
