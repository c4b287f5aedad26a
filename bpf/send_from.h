/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file tells whether a packet of a socket comes to its device from the
 * egress hook. A packet that a tunnel has encapsulated still has the sender's
 * socket, and the hook has seen it for the tunnel's device. The hook saw a
 * packet that waited for its neighbour's address long ago, and others since
 * then.
 */
#ifndef NETNICE_SEND_FROM_H
#define NETNICE_SEND_FROM_H

#include "datagram.h"
#include "frame.h"

#define NN_IPV4_OFFSET	   0x1fff /* of a fragment, in words of 8 bytes */
#define NN_IPV4_MORE	   0x2000
#define NN_IPV6_HEADER	   40
#define NN_SENT_EXTENSIONS 5
#define NN_ICMP_IDENTIFIER 4 /* where a ping socket has its number */

/* The head of a datagram, as its device gets it. */
struct nn_sent {
	__u32 id; /* IP id of its fragments */
	__u16 at; /* payload of IP, from the network header on */
	__u8 protocol;
	__u8 later; /* a fragment but the first */
	__u8 more;  /* the first fragment */
};

static __always_inline bool nn_sent_v4(struct __sk_buff *skb, struct nn_sent *d)
{
	struct {
		__u8 version_words, tos;
		__be16 total, id, fragment;
		__u8 ttl, protocol;
		__u16 sum;
	} h;
	__u16 fragment;

	if (!nn_load(skb, 0, &h, sizeof(h)))
		return false;
	fragment = bpf_ntohs(h.fragment);
	d->at = (h.version_words & 15) * 4;
	d->protocol = h.protocol;
	d->id = h.id;
	d->later = !!(fragment & NN_IPV4_OFFSET);
	d->more = !!(fragment & NN_IPV4_MORE);
	return true;
}

/* A program may add a routing header, and with privilege options. The kernel
 * sends each kind once, options for the destination twice. */
static __always_inline bool nn_sent_v6(struct __sk_buff *skb, struct nn_sent *d)
{
	struct nn_ipv6_extension e;

	d->at = NN_IPV6_HEADER;
	if (!nn_load(skb, 6, &d->protocol, sizeof(d->protocol)))
		return false;
	for (int i = 0; i < NN_SENT_EXTENSIONS; i++) {
		if (!nn_is_extension(d->protocol))
			break;
		if (!nn_load(skb, d->at, &e, sizeof(e)))
			return false;
		if (d->protocol == IPPROTO_FRAGMENT) {
			d->id = e.id;
			d->later = !!(bpf_ntohs(e.fragment) >> 3);
			d->more = bpf_ntohs(e.fragment) & 1;
		}
		d->at += nn_extension_bytes(&e, d->protocol);
		d->protocol = e.next;
	}
	return true;
}

/* Is the packet as the socket made it? What a tunnel has put around it has
 * another protocol, or another port. Not inline: its stack is gone when paths
 * are walked. */
static __noinline int nn_sent_as_made(struct __sk_buff *skb,
				      struct nn_hooked *h, __u64 socket,
				      __u32 protocol, __u32 port)
{
	struct nn_sent d = {};
	__be16 from = 0;

	if (!h ||
	    !(skb->protocol == bpf_htons(ETH_P_IPV6) ? nn_sent_v6(skb, &d)
						     : nn_sent_v4(skb, &d)))
		return 0;
	if (d.later)
		return h->fragments == d.id && h->fragments_of == socket;
	if (d.protocol != protocol)
		return 0;
	if (nn_is_control(protocol))
		d.at += NN_ICMP_IDENTIFIER;
	if (port && (!nn_load(skb, d.at, &from, sizeof(from)) ||
		     from != bpf_htons(port)))
		return 0;
	if (d.more) {
		h->fragments = d.id;
		h->fragments_of = socket;
	}
	return 1;
}

/* It does not matter that another thread sends by another device meanwhile,
 * because it does so on another processor. If something else came between, the
 * socket's last device tells. A packet that neither tells to come from there
 * may have waited. It is another than the one that was seen last, for that one
 * came while it waited; a device on another one passes on the same. */
static __always_inline bool nn_comes_from_hook(struct __sk_buff *skb,
					       struct bpf_sock *sk,
					       const struct nn_socket *s)
{
	struct nn_hooked *h = nn_hooked();
	__u32 port;

	if (!h)
		return !s->out_ifindex || s->out_ifindex == skb->ifindex;
	if (h->socket == (__u64)s
		    ? h->ifindex != skb->ifindex
		    : s->out_ifindex && s->out_ifindex != skb->ifindex) {
		if (h->packet == (__u64)skb)
			return false;
		/* a raw socket's number is no port */
		port = sk->type == SOCK_RAW ? 0 : sk->src_port;
		return nn_sent_as_made(skb, h, (__u64)s, sk->protocol, port);
	}
	h->packet = (__u64)skb;
	return true;
}

#endif
