/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Sockets that only a ring of io_uring's holds: a program may register them
 * there, and close their descriptors. The rings of the processes that a limit
 * concerns are looked through, what is found there is noted by address, and
 * then each connection and UDP socket of the machine is looked up among these.
 * Kernels before 5.17 cannot loop so often: there such a socket is found when
 * another call uses it.
 */
#ifndef NETNICE_URING_H
#define NETNICE_URING_H

#include "identity.h"
#include "socket_record.h"
#include "uring_files.h"

#define NN_URING_FILES (1U << 20)
#define NN_SOCKETS     0x534f434b

/* Whose a socket is that a ring holds. */
struct nn_uring_owner {
	struct nn_who who;
	struct nn_path path;
};

/* The owners by the address of the socket; written and read in one go, see the
 * user side. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct nn_uring_owner);
} uring_sockets SEC(".maps");

/* Rings that were looked through, by address, so that each is once, however
 * many descriptors lead to it. Emptied with the above. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u8);
} urings_seen SEC(".maps");

/* How many were noted since the user side has set it to 0. */
__u32 uring_noted;

struct nn_uring {
	__u64 ctx;
	struct nn_uring_owner owner;
};

struct nn_urings {
	struct file **files;
	struct nn_uring ring;
};

static __always_inline bool nn_uring_known(void)
{
	return bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_loop);
}

static long nn_uring_look(__u32 i, struct nn_uring *r)
{
	struct file *f = (void *)nn_uring_file(r->ctx, i);
	struct socket *socket;
	struct sock *sk;
	__u16 family;
	__u64 key;

	if (!f || BPF_CORE_READ(f, f_inode, i_sb, s_magic) != NN_SOCKETS)
		return 0;
	socket = BPF_CORE_READ(f, private_data);
	sk = BPF_CORE_READ(socket, sk);
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (family != AF_INET && family != AF_INET6)
		return 0;
	key = (__u64)sk;
	if (bpf_map_update_elem(&uring_sockets, &key, &r->owner, BPF_ANY)) {
		nn_fault(NN_FAULT_SOCKET_STORAGE); /* full: the rest is free */
		return 1;
	}
	uring_noted++;
	return 0;
}

/* Does a limit hold for the task? */
static __noinline bool nn_uring_owned(struct task_struct *t,
				      struct nn_uring_owner *o)
{
	struct nn_policy *p = nn_policy();

	if (!p)
		return false;
	nn_identify(t, p, &o->who);
	return nn_path_make(p, t, &o->who, &o->path) != 0;
}

/* Note the sockets that the ring holds. */
static __always_inline void nn_uring_note(struct nn_uring *r, struct file *f)
{
	__u8 seen = 1;
	__u32 n;

	r->ctx = (__u64)BPF_CORE_READ(f, private_data);
	if (bpf_map_lookup_elem(&urings_seen, &r->ctx))
		return;
	bpf_map_update_elem(&urings_seen, &r->ctx, &seen, BPF_ANY);
	n = nn_uring_size(r->ctx);
	if (n > NN_URING_FILES)
		n = NN_URING_FILES;
	if (n)
		bpf_loop(n, nn_uring_look, r, 0);
}

static __always_inline void nn_uring_of_task(struct task_struct *t,
					     struct file *f)
{
	struct nn_uring r = {};

	if (nn_uring_known() && nn_is_uring(f) && nn_uring_owned(t, &r.owner))
		nn_uring_note(&r, f);
}

static long nn_uring_registered(__u32 i, struct nn_urings *w)
{
	struct file *f = NULL;

	bpf_probe_read_kernel(&f, sizeof(f), w->files + i);
	if (f)
		nn_uring_note(&w->ring, f);
	return 0;
}

/* Rings that a task has registered with itself; their descriptors may be
 * closed. */
static __always_inline void nn_urings_of_task(struct task_struct *t)
{
	struct nn_urings w = {};
	struct io_uring_task *u = NULL;

	/* the latter since 5.18 */
	if (!nn_uring_known() || !bpf_core_field_exists(t->io_uring) ||
	    !bpf_core_field_exists(u->registered_rings))
		return;
	u = BPF_CORE_READ(t, io_uring);
	if (!u || !nn_uring_owned(t, &w.ring.owner))
		return;
	w.files = (void *)u +
		  bpf_core_field_offset(struct io_uring_task, registered_rings);
	bpf_loop(NN_URINGS_OF_TASK, nn_uring_registered, &w, 0);
}

/* nn_uring_adopt gives a socket of the machine its owner, if the socket is one
 * of these. It then reports the socket, whose namespace may have nothing else
 * that is limited. */
static __always_inline void nn_uring_adopt(struct seq_file *seq,
					   struct sock *sk)
{
	struct socket *file = sk->sk_socket;
	/* a subflow's is the MPTCP socket */
	struct sock *whole = file ? file->sk : NULL;
	__u64 key = (__u64)whole;
	struct nn_uring_owner *o;
	struct nn_socket *s;

	o = bpf_map_lookup_elem(&uring_sockets, &key);
	if (!o || !whole)
		return;
	/* Its subflows follow it later. If it has state, an outer limit was
	 * there before. */
	if (whole->sk_protocol == IPPROTO_MPTCP) {
		s = nn_state_of(whole);
		if (s && !(s->tgid && s->epoch == o->who.epoch))
			nn_socket_assign(s, &o->who, &o->path);
	}
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (s && s->tgid && s->epoch == o->who.epoch)
		return; /* a process has it open, or has used it */
	s = nn_sock_give(sk, s, &o->who, &o->path);
	if (!s)
		return;
	nn_peer_found(s, sk);
	nn_port_of(s, sk->__sk_common.skc_num);
	nn_socket_record(seq, sk, s);
}

#endif
