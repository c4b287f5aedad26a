// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* This file lists every hook of netnice and nothing else. The headers hold the
 * logic. */
#include "kernel.h"
#include "adopt.h"
#include "adopt_file.h"
#include "adopt_task.h"
#include "carry.h"
#include "each_socket.h"
#include "egress.h"
#include "exec.h"
#include "follow.h"
#include "meter.h"
#include "mptcp.h"
#include "option.h"
#include "socket_record.h"
#include "uring.h"
#include "socket.h"

char LICENSE[] SEC("license")
= "Dual BSD/GPL";

/* These variables keep the types in the object's type information, from which
 * bpf2go makes the Go side. */
enum nn_node_kind *nn_keep_kind __attribute__((unused));
enum nn_node_flags *nn_keep_node_flags __attribute__((unused));
enum nn_socket_flags *nn_keep_socket_flags __attribute__((unused));
enum nn_destinations_flags *nn_keep_destinations __attribute__((unused));
enum nn_direction *nn_keep_direction __attribute__((unused));
enum nn_owner *nn_keep_owner __attribute__((unused));
enum nn_fault *nn_keep_fault __attribute__((unused));
enum nn_event *nn_keep_event __attribute__((unused));
enum nn_unknown *nn_keep_unknown __attribute__((unused));
struct nn_task_record *nn_keep_task_record __attribute__((unused));
struct nn_member_record *nn_keep_member_record __attribute__((unused));
struct nn_egress_event *nn_keep_egress_event __attribute__((unused));
struct nn_queue_event *nn_keep_queue_event __attribute__((unused));
struct nn_exec_event *nn_keep_exec_event __attribute__((unused));
struct nn_request *nn_keep_request __attribute__((unused));
struct nn_socket_seen *nn_keep_socket_seen __attribute__((unused));

/* --- always attached while netnice is up --- */

SEC("sockops")
int nn_sockops(struct bpf_sock_ops *ctx)
{
	switch (ctx->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		nn_connecting(ctx);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		nn_established(ctx);
		break;
	case BPF_SOCK_OPS_RWND_INIT:
		nn_receive_offer(ctx);
		break;
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
		nn_option_listens(ctx);
		break;
	case BPF_SOCK_OPS_RTT_CB:
		nn_acked(ctx);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		if (ctx->args[0] != BPF_WRITE_HDR_TCP_CURRENT_MSS)
			nn_transmit(ctx);
		break;
	}
	return 1;
}

SEC("cgroup/setsockopt")
int nn_setsockopt(struct bpf_sockopt *ctx)
{
	/* Before Linux 6.5 a larger option fails for every program, unless the
	 * hook says that it left the option alone. */
	if (ctx->optlen > NN_PAGE_SIZE) {
		ctx->optlen = 0;
		return 1;
	}
	return nn_option_set(ctx);
}

SEC("cgroup/getsockopt")
int nn_getsockopt(struct bpf_sockopt *ctx)
{
	if (ctx->optlen > NN_PAGE_SIZE) {
		ctx->optlen = 0;
		return 1;
	}
	return nn_option_get(ctx);
}

/* --- attached while a node needs them --- */

SEC("cgroup/sock_create")
int nn_sock_create(struct bpf_sock *ctx)
{
	nn_socket_made(ctx);
	return 1;
}

/* The next two run where nn_sock_create may not look at tasks. They see the
 * socket at the last moment before it can have a connection. */
SEC("fentry/tcp_connect")
int BPF_PROG(nn_connect_fentry, struct sock *sk)
{
	nn_socket_used(sk);
	return 0;
}

SEC("fentry/inet_csk_listen_start")
int BPF_PROG(nn_listen_fentry, struct sock *sk)
{
	nn_socket_used(sk);
	return 0;
}

NN_DATAGRAM_FENTRY(udp_sendmsg)
NN_DATAGRAM_FENTRY(udpv6_sendmsg)
NN_DATAGRAM_FENTRY(raw_sendmsg)
NN_DATAGRAM_FENTRY(rawv6_sendmsg)
NN_DATAGRAM_FENTRY(ping_v4_sendmsg)
NN_DATAGRAM_FENTRY(ping_v6_sendmsg)

SEC("cgroup_skb/egress")
int nn_egress(struct __sk_buff *skb)
{
	return nn_egress_judge(skb, false);
}

/* nn_egress_users takes the place of nn_egress where the kernel lets the egress
 * hook look at tasks. */
SEC("cgroup_skb/egress")
int nn_egress_users(struct __sk_buff *skb)
{
	return nn_egress_judge(skb, true);
}

/* The next three see a process send by TCP: the tracepoint where this kernel
 * has it, else the functions that it has. */
SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(nn_send_tp, struct sock *sk)
{
	nn_socket_sends(sk);
	return 0;
}

SEC("fentry/tcp_sendmsg_locked")
int BPF_PROG(nn_send_fentry, struct sock *sk)
{
	nn_socket_sends(sk);
	return 0;
}

/* Before Linux 6.5 sendfile and splice send through this function. */
SEC("fentry/do_tcp_sendpages")
int BPF_PROG(nn_sendpages_fentry, struct sock *sk)
{
	nn_socket_sends(sk);
	return 0;
}

/* One of the next two is attached: the first, where the hook at a socket's
 * creation may look at tasks, else the second. */
SEC("tp_btf/mptcp_subflow_get_send")
int BPF_PROG(nn_mptcp_tp, struct mptcp_subflow_context *subflow)
{
	nn_mptcp_pushes(subflow);
	return 0;
}

SEC("fentry/mptcp_sendmsg")
int BPF_PROG(nn_mptcp_fentry, struct sock *sk)
{
	nn_mptcp_used(sk, false);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(nn_fork, struct task_struct *parent, struct task_struct *child)
{
	nn_task_forked(parent, child);
	return 0;
}

/* --- attached while a rule names a destination: the peers of UDP --- */

SEC("cgroup/connect4")
int nn_connect4(struct bpf_sock_addr *ctx)
{
	nn_datagrams_to4(ctx);
	return 1;
}

SEC("cgroup/connect6")
int nn_connect6(struct bpf_sock_addr *ctx)
{
	nn_datagrams_to6(ctx);
	return 1;
}

SEC("cgroup/sendmsg4")
int nn_sendmsg4(struct bpf_sock_addr *ctx)
{
	nn_datagrams_to4(ctx);
	return 1;
}

SEC("cgroup/sendmsg6")
int nn_sendmsg6(struct bpf_sock_addr *ctx)
{
	nn_datagrams_to6(ctx);
	return 1;
}

/* --- attached to each device that has a limit, and to all devices while a node
 * has a DSCP --- */

SEC("tc")
int nn_meter(struct __sk_buff *skb)
{
	nn_meter_leaves(skb);
	return TC_ACT_UNSPEC;
}

/* --- attached while the daemon follows rules, and not pinned --- */

SEC("tp_btf/sched_process_exec")
int BPF_PROG(nn_exec, struct task_struct *t)
{
	nn_executed(t);
	return 0;
}

/* --- run by the user side --- */

SEC("iter/task")
int nn_adopt_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct nn_member_record r = {};
	bool member = false, far = false;

	if (!task)
		return 0;
	r.nests = nn_adopt_task(task, &member, &far);
	r.far = far && !member;
	if (!member && !r.far)
		return 0;
	r.cgroup = task->cgroups->dfl_cgrp->kn->id;
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}

SEC("iter/task")
int nn_release_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (task)
		nn_release_task(task);
	return 0;
}

/* nn_list_tasks writes the living members of process trees, one record for each
 * process. */
SEC("iter/task")
int nn_list_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	struct nn_task_record r = {};
	struct nn_task *e;

	if (!t || t->exit_state)
		return 0;
	e = bpf_task_storage_get(&tasks, t, 0, 0);
	if (!e)
		return 0;
	r.tgid = t->tgid;
	r.node = e->node;
	r.cgroup = t->cgroups->dfl_cgrp->kn->id;
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}

SEC("iter/task_file")
int nn_adopt_files(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct sock *sk = nn_file_socket(file);

	if (task && sk)
		nn_adopt_file(task, file, ctx->fd, sk);
	else if (task && file)
		nn_uring_of_task(task, file);
	return 0;
}

SEC("iter/task")
int nn_adopt_urings(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (task)
		nn_urings_of_task(task);
	return 0;
}

SEC("iter/tcp")
int nn_adopt_uring_tcp(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct tcp_sock *tp = skc ? bpf_skc_to_tcp_sock(skc) : NULL;

	if (tp)
		nn_uring_adopt(ctx->meta->seq, (struct sock *)tp);
	return 0;
}

SEC("iter/udp")
int nn_adopt_uring_udp(struct bpf_iter__udp *ctx)
{
	struct udp_sock *up = ctx->udp_sk;

	if (up)
		nn_uring_adopt(ctx->meta->seq, (struct sock *)up);
	return 0;
}

/* nn_follow_files writes a word if the daemon has to walk all files again. */
SEC("iter/task_file")
int nn_follow_files(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct sock *sk = nn_file_socket(file);
	__u32 again = 1;

	if (task && sk && nn_follow_file(task, file, ctx->fd, sk))
		bpf_seq_write(ctx->meta->seq, &again, sizeof(again));
	return 0;
}

SEC("iter/tcp")
int nn_adopt_connections(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;

	if (!skc || !nn_adoptable(skc))
		return 0;
	if (skc->skc_state != TCP_LISTEN)
		nn_adopt_unowned(skc);
	nn_adopt_connection(skc);
	return 0;
}

static __always_inline void nn_list_socket(struct bpf_iter_meta *meta,
					   struct sock *sk, struct nn_socket *s)
{
	if (!list_node || nn_path_has(s, list_node))
		nn_socket_record(meta->seq, sk, s);
}
NN_EACH_SOCKET(list_sockets, sockets, nn_list_socket)

static __always_inline void nn_assign_socket(struct bpf_iter_meta *meta,
					     struct sock *sk,
					     struct nn_socket *s)
{
	nn_own_assign(sk, s);
}
NN_EACH_SOCKET(assign_sockets, sockets, nn_assign_socket)

static __always_inline void nn_carry_rate(struct bpf_iter_meta *meta,
					  struct sock *sk, void *former)
{
	nn_carry_rates_of(sk, former);
}
NN_EACH_SOCKET(carry_rates, former_sockets, nn_carry_rate)
