/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Rates that programs have set on their sockets by options are nowhere but in
 * the map of the release that was asked: where that has another layout, they
 * are read out of it by its type information.
 */
#ifndef NETNICE_CARRY_H
#define NETNICE_CARRY_H

#include "maps.h"

/* Where fields are in the former's struct nn_socket; set before each run. */
struct nn_former_socket {
	__u32 rate_bytes_per_sec;
	__u32 receive_bytes_per_sec;
	__u32 child;
	__u32 start_boottime_ns;
	__u32 cgroup;
	__u32 tgid;
	__u32 uid;
} former_socket;

/* The former's map, with values of its own size, for the programs that do not
 * go through a map: the user side puts it there before it loads them. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct nn_socket);
} former_sockets SEC(".maps");

#define NN_FORMER(to, value, field)                                            \
	bpf_probe_read_kernel(&(to)->field, sizeof((to)->field),               \
			      (value) + former_socket.field)

/* The former's programs see an option first, and so know better. */
static __always_inline void nn_carry_rates_of(struct sock *sk,
					      const void *former)
{
	struct nn_socket was = {}, *s;

	NN_FORMER(&was, former, rate_bytes_per_sec);
	NN_FORMER(&was, former, receive_bytes_per_sec);
	s = bpf_sk_storage_get(&sockets, sk, 0,
			       was.rate_bytes_per_sec ||
					       was.receive_bytes_per_sec
				       ? BPF_SK_STORAGE_GET_F_CREATE
				       : 0);
	if (!s) {
		if (was.rate_bytes_per_sec || was.receive_bytes_per_sec)
			nn_fault(NN_FAULT_SOCKET_STORAGE);
		return;
	}
	s->rate_bytes_per_sec = was.rate_bytes_per_sec;
	s->receive_bytes_per_sec = was.receive_bytes_per_sec;
	if (s->tgid)
		return;
	NN_FORMER(s, former, child);
	NN_FORMER(s, former, start_boottime_ns);
	NN_FORMER(s, former, cgroup);
	NN_FORMER(s, former, uid);
	NN_FORMER(s, former, tgid);
}

#endif
