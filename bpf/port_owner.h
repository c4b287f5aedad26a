/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file notes who owns the ports of UDP-Lite, SCTP and DCCP, whose sockets
 * no helper looks up. The iterator over all sockets does so once a second, and
 * the egress hook as a socket sends. Of several sockets with one port it is the
 * one that was noted last.
 */
#ifndef NETNICE_PORT_OWNER_H
#define NETNICE_PORT_OWNER_H

#include "frame.h"
#include "ports.h"

static __always_inline bool nn_port_has_owner(__u32 protocol)
{
	return protocol == NN_IPPROTO_UDPLITE || protocol == NN_IPPROTO_SCTP ||
	       protocol == NN_IPPROTO_DCCP;
}

/* Not on the stack, which has no room for it. */
static const struct nn_port_owner nn_port_owner_fresh;

static __noinline __attribute__((unused)) void nn_port_owner_note(
	const struct nn_socket *s, const struct nn_port_owner_key *k)
{
	struct nn_ports_seen *seen = nn_ports_seen();
	struct nn_port_owner *o;

	if (!seen || !k->port || !s->path[0].node)
		return;
	o = bpf_map_lookup_elem(&port_owners, k);
	if (!o) {
		bpf_map_update_elem(&port_owners, k, &nn_port_owner_fresh,
				    BPF_NOEXIST);
		o = bpf_map_lookup_elem(&port_owners, k);
	}
	if (!o)
		return;
	o->child = s->child;
	for (int i = 0; i < NN_PATH_MAX; i++)
		o->path.hops[i] = s->path[i];
	o->look = seen->look;
}

/* A packet leaves: its source is the address that answers come to. */
static __always_inline void nn_port_owner_sends(struct __sk_buff *skb,
						const struct nn_socket *s,
						__u32 protocol, __u32 port)
{
	struct nn_port_owner_key k = {.protocol = protocol, .port = port};

	k.netns = nn_packet_netns(skb);
	k.v6 = skb->protocol == bpf_htons(ETH_P_IPV6);
	if (k.v6 ? bpf_skb_load_bytes(skb, 8, k.address, 16)
		 : bpf_skb_load_bytes(skb, 12, k.address, 4))
		return;
	nn_port_owner_note(s, &k);
}

/* The address that a socket is bound to. One of IPv6 that is bound to none
 * takes what comes by IPv4, too. */
static __always_inline void nn_port_owner_open(struct sock *sk,
					       const struct nn_socket *s)
{
	struct nn_port_owner_key k = {.protocol = sk->sk_protocol};
	const __u32 *a = k.address;

	if (sk->sk_type == SOCK_RAW) /* its number is no port */
		return;
	k.port = sk->__sk_common.skc_num;
	k.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	k.v6 = sk->__sk_common.skc_family == AF_INET6;
	if (!k.v6) {
		k.address[0] = sk->__sk_common.skc_rcv_saddr;
		nn_port_owner_note(s, &k);
		return;
	}
	bpf_core_read(k.address, sizeof(k.address),
		      &sk->__sk_common.skc_v6_rcv_saddr);
	if (!a[0] && !a[1] && a[2] == bpf_htonl(0xffff)) {
		k.v6 = 0;
		k.address[0] = a[3];
		k.address[2] = k.address[3] = 0;
	}
	nn_port_owner_note(s, &k);
	if (!k.v6 || a[0] || a[1] || a[2] || a[3] ||
	    BPF_CORE_READ_BITFIELD_PROBED(&sk->__sk_common, skc_ipv6only))
		return;
	k.v6 = 0;
	nn_port_owner_note(s, &k);
}

#endif
