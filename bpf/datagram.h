/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file handles non-TCP egress, such as UDP: the owner of a socket, and the
 * fate of its packets where it has no queue.
 *
 * Packets are charged to the clocks of their path, in one class below each
 * node, and never wait here. A program within its share is not held at all, and
 * TCP gets the rest. A program above its share needs a queue (send_steer.h),
 * for which netnice asks the daemon. Until the queue exists, and where there
 * can be none, packets too far ahead of their clock are dropped.
 */
#ifndef NETNICE_DATAGRAM_H
#define NETNICE_DATAGRAM_H

#include "charge.h"
#include "frame.h"
#include "identity.h"

/* IPv6's least MTU; hardly a device has less. */
#define NN_NEVER_CUT 1280
/* So far ahead of its clock a sender needs a queue, and without one he is so
 * far ahead of it at most. */
#define NN_QUEUE_NEEDED_NS   10000000ULL
#define NN_DATAGRAM_AHEAD_NS 100000000ULL
/* So many datagrams of programs that have sent little are ahead together. */
#define NN_NEWBORN_DATAGRAMS 4
/* Control messages may be that much further ahead, so that they get through. */
#define NN_CONTROL_AHEAD_NS 1000000000ULL
#define NN_QUEUE_ASK_NS	    1000000000ULL
/* Sockets that come and go ask no more often than that, in one namespace. */
#define NN_QUEUE_ASK_AGAIN_NS 10000000ULL

__u64 queue_asked_ns;
__u32 queue_asked_netns;

static __always_inline bool nn_of_internet(struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;

	return family == AF_INET || family == AF_INET6;
}

/* The socket may send non-TCP packets. */
static __always_inline bool nn_sends_datagrams(struct sock *sk)
{
	if (sk->__sk_common.skc_family == AF_PACKET)
		return true;
	return nn_of_internet(sk) && sk->sk_protocol != IPPROTO_TCP &&
	       sk->sk_protocol != IPPROTO_MPTCP;
}

/* May send by the network, not to other programs here. */
static __always_inline bool nn_sends_by_network(struct sock *sk)
{
	return nn_sends_datagrams(sk) ||
	       (nn_of_internet(sk) && sk->sk_type == SOCK_STREAM);
}

/* A program sends a datagram, for which its buffer may be too small. */
static __always_inline void nn_datagram_wanted(struct nn_socket *s, __u64 bytes)
{
	if (s && bytes > s->largest_bytes)
		s->largest_bytes = bytes;
}

/* A part of a datagram waits for the rest. */
static __always_inline bool nn_udp_corked(void *sk)
{
	struct udp_sock *u = nn_stateless_address(sk);
	int pending = 0;

	bpf_core_read(&pending, sizeof(pending), &u->pending);
	return pending;
}

/* A program names the peer to which a UDP socket sends from now on, or now.
 * Corked data still goes to the former peer: in that case the egress hook finds
 * the peer of later packets (packet_peer.h). */
static __always_inline void nn_datagrams_to(struct bpf_sock_addr *ctx,
					    const __u32 *peer)
{
	struct bpf_sock *sk = ctx->sk;
	struct nn_socket *s;

	if (!sk || ctx->protocol != IPPROTO_UDP)
		return;
	/* A call with ancillary data that names nobody: it is for whom the
	 * socket is connected to. */
	if (!ctx->user_port && !peer[0] && !peer[1] && !peer[3])
		return;
	s = nn_state_of(sk);
	if (s && !nn_udp_corked(sk) &&
	    nn_peer_called(s, peer, bpf_ntohs(ctx->user_port), IPPROTO_UDP))
		nn_port_of(s, sk->src_port);
}

static __always_inline void nn_datagrams_to4(struct bpf_sock_addr *ctx)
{
	__u32 peer[4] = {0, 0, bpf_htonl(0xffff), ctx->user_ip4};

	nn_datagrams_to(ctx, peer);
}

static __always_inline void nn_datagrams_to6(struct bpf_sock_addr *ctx)
{
	__u32 peer[4] = {ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2],
			 ctx->user_ip6[3]};

	nn_datagrams_to(ctx, peer);
}

/* Where the hook at a socket's creation may not look at tasks. */
#define NN_DATAGRAM_FENTRY(function)                                           \
	SEC("fentry/" #function)                                               \
	int BPF_PROG(nn_##function, struct sock *sk, struct msghdr *msg,       \
		     __u64 bytes)                                              \
	{                                                                      \
		nn_datagram_wanted(nn_socket_used(sk), bytes);                 \
		return 0;                                                      \
	}

static __always_inline __u32 nn_packet_mtu(struct __sk_buff *skb)
{
	struct sk_buff *b =
		(void *)skb; /* the same, once the program is loaded */
	struct net_device *dev = NULL;
	__u32 mtu = 0;

	bpf_core_read(&dev, sizeof(dev), &b->dev);
	bpf_core_read(&mtu, sizeof(mtu), &dev->mtu);
	return mtu;
}

/* Its IP header, with options or extension headers. */
static __always_inline __u32 nn_packet_ip_header(struct __sk_buff *skb,
						 __u32 least)
{
	struct sk_buff *b = (void *)skb; /* the same, as above */
	__u16 network = 0, transport = 0, bytes;

	bpf_core_read(&network, sizeof(network), &b->network_header);
	bpf_core_read(&transport, sizeof(transport), &b->transport_header);
	bytes = transport - network;
	/* it may not be known where it ends */
	return bytes >= least && bytes < skb->len ? bytes : least;
}

/* Headers that its segments repeat, or its fragments, into which it is cut
 * after the hook. Not inline: its stack is not among those of the walk along
 * the path then. */
static __noinline __attribute__((unused)) __u64 nn_repeated_headers(
	struct __sk_buff *skb, __u32 link_header)
{
	bool v6 = skb->protocol == bpf_htons(ETH_P_IPV6);
	__u32 bytes = skb->len - link_header, header, room, mtu;

	if (skb->gso_segs <= 1 && bytes <= NN_NEVER_CUT)
		return 0;
	header = nn_packet_ip_header(skb, v6 ? 40 : 20);
	if (skb->gso_segs > 1)
		return (__u64)(skb->gso_segs - 1) * (header + 8);
	mtu = nn_packet_mtu(skb);
	if (v6)
		header += 8; /* says which fragment it is */
	if (bytes <= mtu || mtu < header + 8)
		return 0;
	room = (mtu - header) & ~7U;
	if (v6)
		return (__u64)((bytes - header + 8 + room - 1) / room) *
			       header -
		       (header - 8);
	return (__u64)((bytes - header + room - 1) / room - 1) * header;
}

/* IP bytes of a packet, or of all the segments or fragments that it stands for.
 */
static __always_inline __u64 nn_datagram_bytes(struct __sk_buff *skb,
					       __u32 link_header)
{
	return skb->len - link_header + nn_repeated_headers(skb, link_header);
}

/* Ask the daemon for a queue in the device's namespace, once a second until it
 * is there. */
static __always_inline void nn_queue_ask(struct __sk_buff *skb,
					 struct nn_socket *s, __u64 now_ns)
{
	struct nn_queue_event event = {.kind = NN_EVENT_QUEUE, .tgid = s->tgid};

	if (s->queue_asked_ns && s->queue_asked_ns + NN_QUEUE_ASK_NS > now_ns)
		return;
	event.netns = nn_packet_netns(skb);
	if (queue_asked_netns == event.netns &&
	    queue_asked_ns + NN_QUEUE_ASK_AGAIN_NS > now_ns)
		return;
	queue_asked_netns = event.netns;
	queue_asked_ns = now_ns;
	s->queue_asked_ns = now_ns;
	if (bpf_ringbuf_output(&events, &event, sizeof(event),
			       BPF_RB_FORCE_WAKEUP))
		nn_fault(NN_FAULT_EVENT_LOST);
}

static __always_inline void nn_dropped_count(struct nn_socket *s)
{
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		struct nn_clock_key k = {.node = s->path[i].node};
		struct nn_clock *c;

		if (!k.node)
			break;
		c = bpf_map_lookup_elem(&clocks, &k);
		if (!c) {
			k.direction = NN_TOTAL;
			c = bpf_map_lookup_elem(&clocks, &k);
		}
		if (c) {
			__sync_fetch_and_add(&c->dropped, 1);
			return;
		}
	}
}

static __always_inline struct nn_hooked *nn_hooked(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&hooked, &zero);
}

static __always_inline void nn_hooked_note(struct __sk_buff *skb,
					   const struct nn_socket *s)
{
	struct nn_hooked *h = nn_hooked();

	if (!h)
		return;
	h->socket = (__u64)s;
	h->packet = (__u64)skb;
	h->ifindex = skb->ifindex;
}

static __always_inline bool nn_queue_before(struct __sk_buff *skb)
{
	struct nn_link_key key = {.ifindex = skb->ifindex};

	key.netns = nn_packet_netns(skb);
	return bpf_map_lookup_elem(&queued_devices, &key);
}

/* The time at which the datagrams before this one are paid. Of a program that
 * has sent little the datagram itself counts, as if it were sent by all that
 * send now: many programs that each send one and end would else be one ahead
 * each. Some datagrams together may be ahead: under a low limit, a question
 * would else wait behind the flood of a single other program. Not inline: its
 * stack is not on that of connections. */
static __noinline __u64 nn_datagram_due(const struct nn_transmit *x)
{
	__u64 early_ns = NN_NEWBORN_DATAGRAMS * x->wire_bytes *
			 NN_NSEC_PER_SEC / x->limit;

	if (early_ns > NN_DATAGRAM_AHEAD_NS)
		early_ns = NN_DATAGRAM_AHEAD_NS;
	if (x->newborn_ns > x->before_ns + early_ns)
		return x->newborn_ns - early_ns;
	return x->before_ns;
}

/* A packet of such a protocol, without IPv6's extension headers. Not inline:
 * its stack is not on that of connections. */
static __noinline bool nn_packet_is_control(struct __sk_buff *skb)
{
	bool v6 = skb->protocol == bpf_htons(ETH_P_IPV6);
	__u8 protocol = 0;

	return !bpf_skb_load_bytes(skb, v6 ? 6 : 9, &protocol, 1) &&
	       nn_is_control(protocol);
}

/* It goes to this machine, by the loopback device. */
static __always_inline bool nn_here(const struct __sk_buff *skb)
{
	return skb->ifindex == LOOPBACK_IFINDEX;
}

/* The device has a queue that takes this socket's packets after this hook, and
 * charges them as they leave. A queue finds no state of a socket that has none
 * of its own. */
static __always_inline bool nn_queue_takes(struct __sk_buff *skb,
					   struct nn_socket *s,
					   const struct nn_policy *p)
{
	if (!p->queues || nn_here(skb) || s->flags & NN_SOCK_STATELESS)
		return false;
	/* of a socket that was there the device tells */
	if ((s->queue_epoch != p->queues || s->queue_ifindex != skb->ifindex) &&
	    !nn_queue_before(skb))
		return false;
	/* paid for what left before the queue was there */
	s->prepaid_bytes = 0;
	return true;
}

/* A packet of a limited socket at the egress hook, of so many IP bytes, for
 * which so many may be sent as answers; false = drop it. */
static __always_inline bool nn_datagram_judge(struct __sk_buff *skb,
					      struct nn_socket *s, __u64 bytes,
					      __u64 answered)
{
	struct nn_policy *p = nn_policy();
	__u64 ahead_ns = NN_DATAGRAM_AHEAD_NS;
	struct nn_transmit x = {
		.now_ns = bpf_ktime_get_ns(),
		.wire_bytes = bytes,
		.loopback = nn_here(skb) && !answered,
		.empty = 1,
		.apart = NN_APART_DATAGRAMS,
	};

	x.segments = nn_counted(nn_packet_segments(skb));
	if (!p)
		return true;
	if (nn_queue_takes(skb, s, p)) {
		if (!answered)
			return true;
		bytes = 0;
	}
	if (answered)
		x.wire_bytes = answered + (nn_here(skb) ? 0 : bytes);
	nn_path_walk(s, &x, NN_ASK);
	if (x.limit == NN_UNLIMITED)
		return true;
	/* a socket that has its node still to get has no class in a queue */
	if (!nn_here(skb) && s->path[0].node &&
	    !(s->flags & NN_SOCK_STATELESS) &&
	    nn_datagram_due(&x) > x.now_ns + NN_QUEUE_NEEDED_NS)
		nn_queue_ask(skb, s, x.now_ns);
	if (nn_datagram_due(&x) > x.now_ns + ahead_ns) {
		if (nn_packet_is_control(skb))
			ahead_ns += NN_CONTROL_AHEAD_NS;
		if (nn_datagram_due(&x) > x.now_ns + ahead_ns) {
			nn_dropped_count(s);
			return false;
		}
	}
	nn_path_walk(s, &x, NN_CHARGE);
	/* A queue that takes it after this hook has not to charge it again;
	 * before the loopback device there is none. */
	if (!nn_here(skb) && bytes)
		s->prepaid_bytes = bytes;
	return true;
}

#endif
