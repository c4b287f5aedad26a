/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Programs that the user side runs on every socket with state. The map that has
 * it lists them. Where a security module of the machine's refuses such
 * iterators, they are looked for: in the tables of files of all processes, and
 * among the connections of each network namespace, where those are that nobody
 * has open.
 */
#ifndef NETNICE_EACH_SOCKET_H
#define NETNICE_EACH_SOCKET_H

#include "identity.h"

/* each(meta, sk, value of the map); some sockets more than once, by the latter
 * two. */
#define NN_EACH_SOCKET(name, map, each)                                        \
	SEC("iter/bpf_sk_storage_map")                                         \
	int nn_##name(struct bpf_iter__bpf_sk_storage_map *ctx)                \
	{                                                                      \
		if (ctx->sk && ctx->value)                                     \
			each(ctx->meta, ctx->sk, ctx->value);                  \
		return 0;                                                      \
	}                                                                      \
                                                                               \
	SEC("iter/task_file")                                                  \
	int nn_files_##name(struct bpf_iter__task_file *ctx)                   \
	{                                                                      \
		struct sock *sk = nn_file_socket(ctx->file);                   \
		void *value;                                                   \
                                                                               \
		if (!sk)                                                       \
			return 0;                                              \
		value = bpf_sk_storage_get(&map, sk, 0, 0);                    \
		if (value)                                                     \
			each(ctx->meta, sk, value);                            \
		return 0;                                                      \
	}                                                                      \
                                                                               \
	SEC("iter/tcp")                                                        \
	int nn_conns_##name(struct bpf_iter__tcp *ctx)                         \
	{                                                                      \
		struct sock_common *skc = ctx->sk_common;                      \
		struct tcp_sock *tp = skc ? bpf_skc_to_tcp_sock(skc) : NULL;   \
		struct sock *sk = (struct sock *)tp;                           \
		void *value;                                                   \
                                                                               \
		if (!tp)                                                       \
			return 0;                                              \
		value = bpf_sk_storage_get(&map, sk, 0, 0);                    \
		if (value)                                                     \
			each(ctx->meta, sk, value);                            \
		return 0;                                                      \
	}

#endif
