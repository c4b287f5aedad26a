/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The few fields of the kernel's own structs that netnice reads, relocated by
 * CO-RE against the running kernel, and constants that users' headers lack.
 */
#ifndef NETNICE_KERNEL_H
#define NETNICE_KERNEL_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#define AF_INET		   2
#define AF_INET6	   10
#define AF_PACKET	   17
#define IPPROTO_TCP	   6
#define IPPROTO_UDP	   17
#define IPPROTO_HOPOPTS	   0 /* IPv6's, as the next three */
#define IPPROTO_ROUTING	   43
#define IPPROTO_FRAGMENT   44
#define IPPROTO_DSTOPTS	   60
#define IPPROTO_MPTCP	   262
#define NN_IPPROTO_DCCP	   33
#define NN_IPPROTO_SCTP	   132
#define NN_IPPROTO_UDPLITE 136
#define SOL_SOCKET	   1
#define SOL_TCP		   6
#define SO_SNDBUF	   7
#define SO_SNDBUFFORCE	   32
#define SO_MAX_PACING_RATE 47
#define TCP_NODELAY	   1
#define TCP_WINDOW_CLAMP   10
#define SOCK_STREAM	   1
#define SOCK_RAW	   3
#define SOCK_BINDPORT_LOCK 8
#define LOOPBACK_IFINDEX   1
#define TCP_SYN_SENT	   2
#define TCP_ESTABLISHED	   1
#define TCP_FIN_WAIT1	   4
#define TCP_FIN_WAIT2	   5
#define TCP_TIME_WAIT	   6
#define TCP_CLOSE	   7
#define TCP_CLOSE_WAIT	   8
#define TCP_LISTEN	   10
#define TCP_NEW_SYN_RECV   12
#define EPERM		   1
#define EAGAIN		   11
#define ENOMEM		   12
#define EINVAL		   22
#define EOPNOTSUPP	   95
#define EINPROGRESS	   115
#define ENOBUFS		   105
#define PF_KTHREAD	   0x00200000
#define PF_IO_WORKER	   0x00000010 /* a thread of io_uring's */
#define NN_PAGE_SIZE	   4096
/* Linux 6.12; older kernels answer -EINVAL. */
#define NN_TCP_BPF_CB_FLAGS 1008
#define NN_CGROUP_CLIMB	    64 /* levels upwards in one call */
#define NN_CGROUP_CLIMBS    256
#define NN_USERNS_DEPTH	    34 /* the kernel allows 32 */

#define __core		    __attribute__((preserve_access_index))

typedef struct {
	__u32 val;
} __core kuid_t;

typedef struct {
	__u32 val;
} __core kgid_t;

struct user_namespace {
	struct user_namespace *parent;
	int level;
	kuid_t owner;
} __core;

struct group_info {
	int ngroups;
	kgid_t gid[0];
} __core;

struct cred {
	kuid_t uid;
	kuid_t euid;
	kgid_t egid;
	struct group_info *group_info;
	struct user_namespace *user_ns;
} __core;

struct kernfs_node {
	__u64 id;
} __core;

struct cgroup_subsys_state {
	struct cgroup_subsys_state *parent;
} __core;

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
} __core;

struct sock_cgroup_data {
	struct cgroup *cgroup;
} __core;

struct css_set {
	struct cgroup *dfl_cgrp;
} __core;

struct bpf_local_storage;

struct file;

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} __core;

struct files_struct {
	struct fdtable *fdt;
} __core;

struct list_head {
	struct list_head *next;
} __core;

struct wait_queue_entry {
	void *private;
	struct list_head entry;
} __core;

typedef struct wait_queue_head {
	struct list_head head;
} __core wait_queue_head_t;

struct socket_wq {
	wait_queue_head_t wait;
} __core;

struct net;

struct nsproxy {
	struct net *net_ns;
} __core;

struct io_uring_task;

struct task_struct {
	unsigned int flags;
	int pid;
	int tgid;
	int exit_state;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	__u64 start_boottime;
	const struct cred *real_cred;
	const struct cred *cred;
	struct css_set *cgroups;
	struct files_struct *files;
	struct nsproxy *nsproxy;
	struct bpf_local_storage *bpf_storage;
	struct io_uring_task *io_uring;
} __core;

struct in6_addr {
	__u8 bytes[16];
};

struct ns_common {
	unsigned int inum;
} __core;

struct net {
	struct ns_common ns;
} __core;

typedef struct {
	struct net *net;
} __core possible_net_t;

struct net_device {
	possible_net_t nd_net;
	int ifindex;
	unsigned int mtu;
	unsigned short hard_header_len;
} __core;

struct dst_entry {
	struct net_device *dev;
} __core;

struct sock;

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	__u16 network_header;
	__u16 transport_header;
	__u32 tail;
	unsigned char *head;
} __core;

typedef struct {
	__s64 counter;
} __core atomic64_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	unsigned char skc_ipv6only : 1;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
} __core;

struct socket;

typedef struct {
	int counter;
} __core atomic_t;

typedef struct {
	int owned;
} __core socket_lock_t;

typedef struct refcount_struct {
	atomic_t refs;
} __core refcount_t;

struct bpf_prog;

struct sock_reuseport {
	struct bpf_prog *prog;
} __core;

struct sock {
	struct sock_common __sk_common;
	socket_lock_t sk_lock;
	refcount_t sk_wmem_alloc;
	atomic_t sk_omem_alloc;
	int sk_sndbuf;
	int sk_wmem_queued;
	struct dst_entry *sk_dst_cache;
	struct socket *sk_socket;
	struct socket_wq *sk_wq;
	__u8 sk_userlocks : 4;
	__u16 sk_type;
	__u16 sk_protocol;
	kuid_t sk_uid;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
	struct bpf_local_storage *sk_bpf_storage;
	struct sock_cgroup_data sk_cgrp_data;
	struct sock_reuseport *sk_reuseport_cb;
} __core;

struct inet_sock {
	struct sock sk;
} __core;

struct udp_sock {
	struct inet_sock inet;
	int pending;
	void *encap_rcv;
} __core;

struct inet_bind_bucket {
	signed char fastreuse;
} __core;

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	struct inet_bind_bucket *icsk_bind_hash;
	__u16 icsk_ext_hdr_len;
} __core;

struct minmax_sample {
	__u32 t;
	__u32 v;
} __core;

struct minmax {
	struct minmax_sample s[3];
} __core;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u16 tcp_header_len;
	__u64 bytes_sent;
	__u64 bytes_received;
	__u32 segs_in;
	__u32 segs_out;
	__u32 write_seq;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 rcv_nxt;
	__u32 rcv_wup;
	__u32 rcv_wnd;
	__u32 srtt_us;
	__u32 snd_cwnd;
	__u32 mss_cache;
	__u64 tcp_wstamp_ns;
	__u64 tcp_mstamp; /* us */
	struct minmax rtt_min;
	__u32 window_clamp;
	bool is_mptcp;
	__u8 bpf_sock_ops_cb_flags;
} __core;

struct mptcp_sock {
	struct inet_connection_sock sk;
	__u64 write_seq;
	__u64 snd_una;
	bool use_64bit_ack;
} __core;

struct mptcp_subflow_context {
	struct sock *tcp_sock;
	struct sock *conn;
} __core;

struct super_block {
	unsigned long s_magic;
} __core;

struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
} __core;

struct qstr {
	const unsigned char *name;
} __core;

struct dentry {
	struct qstr d_name;
} __core;

struct path {
	struct dentry *dentry;
} __core;

struct file {
	void *private_data;
	struct inode *f_inode;
	struct path f_path;
} __core;

struct socket {
	struct sock *sk;
	struct file *file;
} __core;

/* What a call's number, and its first, third and fourth arguments, are in, on
 * each architecture. */
struct pt_regs___x86 {
	unsigned long r10;
	unsigned long orig_ax;
	unsigned long dx;
	unsigned long di;
} __core;

struct user_pt_regs {
	__u64 regs[31];
} __core;

struct pt_regs___arm64 {
	struct user_pt_regs user_regs;
	int syscallno;
} __core;

/* The number or an argument of a call, by where each architecture has it. On
 * any other it is ~0, which is no call's number and no descriptor. */
#define NN_CALL_READ(regs, x86, arm64)                                         \
	(bpf_core_field_exists(struct pt_regs___x86, x86)                      \
		 ? (__u64)BPF_CORE_READ((struct pt_regs___x86 *)(regs), x86)   \
	 : bpf_core_field_exists(struct pt_regs___arm64, arm64)                \
		 ? (__u64)BPF_CORE_READ((struct pt_regs___arm64 *)(regs),      \
					arm64)                                 \
		 : ~0ULL)
#define NN_CALL_NUMBER(regs) NN_CALL_READ(regs, orig_ax, syscallno)
#define NN_CALL_FIRST(regs)  NN_CALL_READ(regs, di, user_regs.regs[0])
#define NN_CALL_THIRD(regs)  NN_CALL_READ(regs, dx, user_regs.regs[2])
#define NN_CALL_FOURTH(regs) NN_CALL_READ(regs, r10, user_regs.regs[3])

struct msghdr;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
	__u32 uid;
};

struct bpf_iter__udp {
	struct bpf_iter_meta *meta;
	struct udp_sock *udp_sk;
	__u32 uid;
	int bucket;
};

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	struct sock *sk;
	void *value;
};

#endif
