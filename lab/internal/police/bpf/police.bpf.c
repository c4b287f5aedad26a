// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* A policer, to compare with: what a cgroup receives beyond a token bucket is
 * dropped. The bucket is kept as the time until which what has passed is paid:
 * it is full when that is depth_ns ago, and empty when it is now. */
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license")
= "Dual BSD/GPL";

#define NSEC_PER_SEC 1000000000ULL

volatile const __u64 rate_bytes_per_sec = 1;
volatile const __u64 depth_ns;

struct bucket {
	struct bpf_spin_lock lock;
	__u32 pad;
	__u64 paid_ns;
	__u64 dropped; /* segments */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bucket);
} buckets SEC(".maps");

/* header_bytes is the length of the IP and TCP headers of a packet without IPv6
 * extension headers. */
static __always_inline __u32 header_bytes(struct __sk_buff *skb)
{
	__u32 ip = 40;
	__u8 byte = 0;

	if (skb->protocol == bpf_htons(0x0800)) {
		if (bpf_skb_load_bytes(skb, 0, &byte, 1))
			return 0;
		ip = (byte & 15) * 4;
	}
	if (bpf_skb_load_bytes(skb, ip + 12, &byte, 1))
		return 0;
	return ip + (byte >> 4) * 4;
}

SEC("cgroup_skb/ingress")
int police(struct __sk_buff *skb)
{
	__u32 key = 0, segments = 1;
	__u64 bytes = skb->len, cost, now, start;
	struct bucket *b = bpf_map_lookup_elem(&buckets, &key);
	int pass = 0;

	if (!b)
		return 1;
	if (skb->gso_size) { /* one header for many segments */
		__u32 header = header_bytes(skb);

		segments =
			(skb->len - header + skb->gso_size - 1) / skb->gso_size;
		bytes += (__u64)header * (segments - 1);
	}
	cost = bytes * NSEC_PER_SEC / rate_bytes_per_sec;
	now = bpf_ktime_get_ns();
	bpf_spin_lock(&b->lock);
	start = b->paid_ns;
	if (start + depth_ns < now)
		start = now - depth_ns;
	if (start + cost <= now) {
		b->paid_ns = start + cost;
		pass = 1;
	} else {
		b->dropped += segments;
	}
	bpf_spin_unlock(&b->lock);
	return pass;
}
