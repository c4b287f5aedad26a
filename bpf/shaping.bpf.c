// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* This file lists every hook of shaping. They are attached while a limit on
 * ingress is in force. The headers hold the logic. Nodes and socket owners are
 * those of netnice.bpf.c. */
#include "kernel.h"
#include "each_socket.h"
#include "shape_listen.h"
#include "shape_udp_port.h"
#include "shape_place.h"

char LICENSE[] SEC("license")
= "Dual BSD/GPL";

/* These variables keep the types in the object's type information, from which
 * bpf2go makes the Go side. */
enum nn_shape_fault *nn_keep_shape_fault __attribute__((unused));
enum nn_device_flags *nn_keep_device_flags __attribute__((unused));
struct nn_found *nn_keep_found __attribute__((unused));

/* --- the path of a packet through the queue --- */

SEC("tc")
int nn_shape_in(struct __sk_buff *skb)
{
	return nn_shape_arrived(skb);
}

SEC("tc")
int nn_shape_back(struct __sk_buff *skb)
{
	return nn_shape_released(skb);
}

SEC("tc")
int nn_shape_home(struct __sk_buff *skb)
{
	return nn_shape_came_home(skb);
}

SEC("tc")
int nn_shape_deliver(struct __sk_buff *skb)
{
	return nn_shape_delivered(skb);
}

/* --- the network namespaces that hold limited programs --- */

SEC("tp_btf/sched_process_exec")
int BPF_PROG(nn_place_exec)
{
	nn_place_ask();
	return 0;
}

SEC("iter/task")
int nn_find_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;

	if (!ctx->meta->seq_num) /* before nn_find_sockets */
		nn_ports_look();
	if (t)
		nn_place_of_task(ctx->meta->seq, t);
	return 0;
}

static __always_inline void nn_find_socket(struct bpf_iter_meta *meta,
					   struct sock *sk, struct nn_socket *s)
{
	nn_port_of(s, sk->__sk_common.skc_num);
	if (nn_port_has_owner(sk->sk_protocol))
		nn_port_owner_open(sk, s);
	nn_place_of_socket(meta->seq, sk, s);
}
NN_EACH_SOCKET(find_sockets, sockets, nn_find_socket)

/* --- the bytes in flight: receive windows --- */

SEC("sockops")
int nn_shape_window(struct bpf_sock_ops *ctx)
{
	switch (ctx->op) {
	case BPF_SOCK_OPS_RWND_INIT:
		nn_window_answer(ctx, ctx->sk ? nn_window_first(ctx->sk)
					      : nn_window_asked(ctx));
		break;
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		nn_connects(ctx);
		break;
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
		nn_listen_called(ctx);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		nn_accepted(ctx);
		nn_window_called(ctx, NN_WINDOW_BEGINS);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		nn_window_called(ctx, NN_WINDOW_BEGINS);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		if (ctx->args[0] != BPF_WRITE_HDR_TCP_CURRENT_MSS)
			nn_window_called(ctx, NN_WINDOW_ACKS);
		break;
	}
	return 1;
}

SEC("iter/tcp")
int nn_shape_windows(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	__u32 again = 1;

	/* a written word tells the user side to run this iterator again */
	if (skc && nn_window_visit(skc))
		bpf_seq_write(ctx->meta->seq, &again, sizeof(again));
	return 0;
}

/* --- the owner of a socket --- */

SEC("cgroup/sock_create")
int nn_datagram_create(struct bpf_sock *ctx)
{
	nn_place_ask();
	return 1;
}

/* A UDP socket gets its port by bind. If it gets the port by sending, the
 * egress hook sees that as the datagram leaves (datagram.h). */
SEC("cgroup/post_bind4")
int nn_bound4(struct bpf_sock *ctx)
{
	nn_bound(ctx);
	return 1;
}

SEC("cgroup/post_bind6")
int nn_bound6(struct bpf_sock *ctx)
{
	nn_bound(ctx);
	return 1;
}

/* This hook runs where nn_datagram_create may not look at tasks. It finds the
 * socket's owner as the socket gets its port, by bind or by sending. */
SEC("fexit/udp_lib_get_port")
int BPF_PROG(nn_bound_fexit, struct sock *sk)
{
	struct nn_socket *s = nn_socket_used(sk);

	nn_port_of(s, sk->__sk_common.skc_num);
	if (s && nn_port_has_owner(sk->sk_protocol))
		nn_port_owner_open(sk, s);
	return 0;
}

SEC("iter/task_file")
int nn_adopt_udp_files(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct sock *sk = nn_file_socket(ctx->file);

	if (task && sk)
		nn_adopt_datagrams(task, sk);
	return 0;
}
