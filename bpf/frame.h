/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What programs on devices have in common: frames, and what becomes of them. */
#ifndef NETNICE_FRAME_H
#define NETNICE_FRAME_H

#include "kernel.h"

#define TC_ACT_UNSPEC (-1) /* whatever comes next decides */
#define TC_ACT_SHOT   2
#define ETH_P_IP      0x0800
#define ETH_P_IPV6    0x86dd
#define ETH_P_8021Q   0x8100
#define ETH_P_ARP     0x0806
#define ETH_HLEN      14

/* A device's packets whose link has no MAC header get one for the pair; the
 * kernel takes it off where they come back. */
static __always_inline bool nn_header_add(struct __sk_buff *skb)
{
	__be16 protocol = skb->protocol;

	return !bpf_skb_change_head(skb, ETH_HLEN, 0) &&
	       !bpf_skb_store_bytes(skb, ETH_HLEN - 2, &protocol,
				    sizeof(protocol), 0);
}

#endif
