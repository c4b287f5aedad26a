/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * In which network namespaces something lives whose receiving is limited: the
 * user side looks once a second, and at once when a socket is made elsewhere.
 */
#ifndef NETNICE_SHAPE_PLACE_H
#define NETNICE_SHAPE_PLACE_H

#include "shape_steer.h"

/* The number of this poll; the user side sets it. */
volatile __u32 look = 0;

static __always_inline bool nn_inbound_limits(const struct nn_hop *path)
{
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		if (!path[i].node)
			break;
		if (nn_inbound_rate(&path[i]))
			return true;
	}
	return false;
}

/* Whether something that a task receives may be limited. A rule may be for the
 * destinations that it will have. */
static __always_inline bool nn_inbound_may(const struct nn_policy *p,
					   const struct nn_path *path)
{
	if (p && p->destinations & NN_DESTINATIONS_DOWN &&
	    (path->hops[0].node || p->kinds & 1 << NN_NODE_DESTINATION))
		return true;
	return nn_inbound_limits(path->hops);
}

/* Note that something limited is in a namespace, or report it if it is no place
 * yet. */
static __always_inline void nn_place_found(struct seq_file *seq, __u32 netns,
					   __u32 pid)
{
	struct nn_found found = {.netns = netns, .pid = pid};
	struct nn_place *place = bpf_map_lookup_elem(&places, &netns);

	if (place)
		place->look = look;
	else
		bpf_seq_write(seq, &found, sizeof(found));
}

static __always_inline void nn_place_of_task(struct seq_file *seq,
					     struct task_struct *t)
{
	struct nn_policy *p = nn_policy();
	struct nn_path path = {};
	struct nn_who w;

	/* a thread may be elsewhere than its process, but few are */
	if (!p || t->exit_state || t->flags & PF_KTHREAD || !t->nsproxy ||
	    (t->pid != t->tgid && t->nsproxy == t->group_leader->nsproxy))
		return;
	nn_identify(t, p, &w);
	nn_path_make(p, t, &w, &path);
	if (!nn_inbound_may(p, &path))
		return;
	nn_place_found(seq, BPF_CORE_READ(t, nsproxy, net_ns, ns.inum), t->pid);
}

static __always_inline void nn_place_of_socket(struct seq_file *seq,
					       struct sock *sk,
					       struct nn_socket *s)
{
	__u32 state = sk->__sk_common.skc_state;

	/* closed by its program, or not open yet and not limited by itself */
	if (!sk->sk_socket || (state == TCP_CLOSE && !s->own.node &&
			       sk->sk_protocol != IPPROTO_UDP &&
			       !nn_port_has_owner(sk->sk_protocol)))
		return;
	if (nn_inbound_limits(s->path))
		nn_place_found(
			seq,
			BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum), 0);
}

/* nn_place_ask asks for the devices of the namespace of a limited process, if
 * netnice does not follow them yet. It runs when the process executes a
 * program, the usual next step after it enters a namespace, and when it makes a
 * socket. */
static __always_inline void nn_place_ask(void)
{
	struct task_struct *t = bpf_get_current_task_btf();
	__u32 netns = BPF_CORE_READ(t, nsproxy, net_ns, ns.inum);
	__u32 event = NN_EVENT_ARM;
	struct nn_path path = {};
	struct nn_who w = {};

	if (bpf_map_lookup_elem(&places, &netns))
		return;
	nn_path_of_caller(&w, &path);
	if (!nn_inbound_may(nn_policy(), &path))
		return;
	if (bpf_ringbuf_output(&events, &event, sizeof(event),
			       BPF_RB_FORCE_WAKEUP))
		nn_fault(NN_FAULT_EVENT_LOST);
}

#endif
