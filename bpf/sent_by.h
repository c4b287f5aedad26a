/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file finds the sender of non-TCP traffic at the egress hook. The hook
 * runs in the process that made the call, unless the machine's firewall had
 * given the packet to another process to decide upon. The process that runs
 * there must therefore have the socket open, too.
 */
#ifndef NETNICE_SENT_BY_H
#define NETNICE_SENT_BY_H

#include "identity.h"
#include "uring_files.h"

/* Of a process's files. They are looked at only for calls that name no
 * descriptor, such as io_submit, and once for a process that does not have the
 * socket: more would let a program keep a processor for milliseconds. */
#define NN_FILES_LOOKED (1U << 16)
/* SCTP and DCCP send in whichever process is interrupted: there all would be
 * looked at in vain. A file beyond these is found by follow.h. */
#define NN_FILES_LOOKED_ASIDE 1024
#define NN_CALL_URING_ENTER   426 /* on each architecture */
#define NN_URING_ENTER_REGISTERED                                              \
	16 /* the ring is one of the task's, which needs no descriptor */

struct nn_held {
	struct file **files;
	struct file *file;
	bool found;
};

static long nn_held_look(__u32 i, struct nn_held *h)
{
	struct file *at = NULL;

	bpf_probe_read_kernel(&at, sizeof(at), h->files + i);
	h->found = at == h->file;
	return h->found;
}

static __always_inline struct sock *nn_packet_sock(struct __sk_buff *skb)
{
	struct sk_buff *b = (void *)skb; /* true once it is loaded */
	struct sock *sk = NULL;

	bpf_core_read(&sk, sizeof(sk), &b->sk);
	return sk;
}

/* These protocols may send in a process that has nothing to do with the
 * packet. */
static __always_inline bool nn_sent_aside(const struct sock *sk)
{
	__u16 protocol = BPF_CORE_READ(sk, sk_protocol);

	return protocol == NN_IPPROTO_SCTP || protocol == NN_IPPROTO_DCCP;
}

/* What a descriptor of the process's stands for. */
static __always_inline struct file *nn_file_of(struct task_struct *t, __u64 fd)
{
	struct file **files, *file = NULL;

	fd &= 0xffffffff;
	if (fd >= BPF_CORE_READ(t, files, fdt, max_fds))
		return NULL;
	files = BPF_CORE_READ(t, files, fdt, fd);
	bpf_probe_read_kernel(&file, sizeof(file), files + fd);
	return file;
}

/* Did the process call the kernel with a descriptor of that file? It is the
 * first argument of the calls that send, and the third of splice. */
static __always_inline bool nn_called_with(struct task_struct *t,
					   const struct file *file)
{
	void *regs = (void *)bpf_task_pt_regs(t);

	return nn_file_of(t, NN_CALL_FIRST(regs)) == file ||
	       nn_file_of(t, NN_CALL_THIRD(regs)) == file;
}

/* Does the calling process have the packet's socket open? Not inline: its part
 * of the stack is free again when paths are made. */
static __noinline bool nn_caller_has(struct __sk_buff *skb, bool looked)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct sock *sk = nn_packet_sock(skb);
	__u32 n, most = NN_FILES_LOOKED;
	struct nn_held h = {};

	if (!sk)
		return false;
	h.file = BPF_CORE_READ(sk, sk_socket, file);
	if (!h.file)
		return false; /* the kernel's own, or closed */
	if (nn_called_with(t, h.file))
		return true;
	if (looked)
		return false;
	h.files = BPF_CORE_READ(t, files, fdt, fd);
	n = BPF_CORE_READ(t, files, fdt, max_fds);
	if (nn_sent_aside(sk))
		most = NN_FILES_LOOKED_ASIDE;
	if (n > most)
		n = most;
	bpf_loop(n, nn_held_look, &h, 0);
	return h.found;
}

struct nn_ring_held {
	__u64 ctx;
	__u64 file;
	bool found;
};

static long nn_ring_look(__u32 i, struct nn_ring_held *h)
{
	h->found = nn_uring_file(h->ctx, i) == h->file;
	return h->found;
}

/* The ring that the process has called the kernel with, NULL = it has called
 * for something else. */
static __always_inline struct file *nn_ring_called(struct task_struct *t)
{
	void *regs = (void *)bpf_task_pt_regs(t);
	struct io_uring_task *u = NULL;
	struct file *f = NULL;
	__u64 ring;

	if (NN_CALL_NUMBER(regs) != NN_CALL_URING_ENTER)
		return NULL;
	ring = NN_CALL_FIRST(regs);
	if (!(NN_CALL_FOURTH(regs) & NN_URING_ENTER_REGISTERED))
		return nn_file_of(t, ring);
	if (!bpf_core_field_exists(u->registered_rings))
		return NULL;
	u = BPF_CORE_READ(t, io_uring);
	bpf_probe_read_kernel(
		&f, sizeof(f),
		(void *)u +
			bpf_core_field_offset(struct io_uring_task,
					      registered_rings) +
			(ring & (NN_URINGS_OF_TASK - 1)) * sizeof(f));
	return f;
}

/* Is the file registered with that ring? */
static __noinline bool nn_ring_holds(struct task_struct *t,
				     const struct file *file)
{
	struct nn_ring_held h = {.file = (__u64)file};
	struct file *ring = nn_ring_called(t);
	__u32 n;

	if (!ring || !nn_is_uring(ring))
		return false;
	h.ctx = (__u64)BPF_CORE_READ(ring, private_data);
	n = nn_uring_size(h.ctx);
	bpf_loop(n < NN_FILES_LOOKED ? n : NN_FILES_LOOKED, nn_ring_look, &h,
		 0);
	return h.found;
}

/* The process may have the socket only registered with a ring of io_uring.
 * Netnice assumes that if the socket belongs to the same user. For another
 * user's socket the ring shows it, or a kernel thread that only serves rings
 * sends the packet. */
static __noinline bool nn_by_uring(struct __sk_buff *skb, struct task_struct *t)
{
	struct sock *sk = nn_packet_sock(skb);
	struct file *file;

	if (!sk || !bpf_core_field_exists(t->io_uring) ||
	    !(t->flags & PF_IO_WORKER || BPF_CORE_READ(t, io_uring)))
		return false;
	file = BPF_CORE_READ(sk, sk_socket, file);
	if (!file)
		return false;
	if (BPF_CORE_READ(sk, sk_uid.val) ==
	    BPF_CORE_READ(t, real_cred, uid.val))
		return true;
	if (nn_sent_aside(sk))
		return false;
	return t->flags & PF_IO_WORKER || nn_ring_holds(t, file);
}

/* It was found not to have it open: this is not looked for at each packet. The
 * kernel's own are no files, and not looked for at all. */
static __always_inline void nn_stranger(struct __sk_buff *skb,
					struct bpf_sock *sk,
					struct nn_socket *s,
					const struct nn_policy *p,
					const struct task_struct *t)
{
	struct sock *of = nn_packet_sock(skb);

	if (!of || !BPF_CORE_READ(of, sk_socket, file))
		return;
	if (!s) {
		s = bpf_sk_storage_get(&sockets, sk, 0,
				       BPF_SK_STORAGE_GET_F_CREATE);
		if (!s)
			return;
		s->epoch = p->epoch;
	}
	s->stranger = t->tgid;
	s->stranger_epoch = p->epoch;
}

/* Another one runs here than who used the socket last, as far as is known. */
static __always_inline bool nn_another_sends(const struct nn_socket *s)
{
	struct nn_policy *p = nn_policy();
	struct task_struct *t;

	if (!nn_kinds(p))
		return false;
	t = bpf_get_current_task_btf();
	if (t->flags & PF_KTHREAD)
		return false;
	return s ? !nn_still_holds(s, p, t) : !nn_task_free(p, t);
}

/* Does the calling process send the packet by a socket that it has? */
static __always_inline bool nn_caller_sends(struct __sk_buff *skb,
					    struct bpf_sock *sk,
					    struct nn_socket *s,
					    const struct nn_policy *p)
{
	struct task_struct *t = bpf_get_current_task_btf();
	bool looked =
		s && s->stranger == t->tgid && s->stranger_epoch == p->epoch;

	if (nn_by_uring(skb, t) || nn_caller_has(skb, looked))
		return true;
	if (!looked)
		nn_stranger(skb, sk, s, p, t);
	return false;
}

/* The state of a packet's socket, whose user the calling process is from now
 * on, if it has it. */
static __noinline struct nn_socket *nn_sent_by_caller(struct __sk_buff *skb,
						      struct bpf_sock *sk,
						      struct nn_socket *s)
{
	struct nn_policy *p = nn_policy();
	struct nn_path path = {};
	struct nn_who w = {};
	__u32 n;

	if (!p || !nn_caller_sends(skb, sk, s, p))
		return s;
	n = nn_path_of_caller(&w, &path);
	if (!n && !s && nn_finds_free(p)) {
		nn_cgroup_found_free(&w);
		return NULL;
	}
	if (!s)
		bpf_get_socket_cookie(skb);
	s = nn_socket_give(sk, s, &w, &path);
	if (s && p->destinations)
		nn_peer_found(s, nn_packet_sock(skb));
	return s;
}

#endif
