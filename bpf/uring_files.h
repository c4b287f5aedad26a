/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A ring of io_uring's, and the files that are registered with it, as each
 * kernel has them. */
#ifndef NETNICE_URING_FILES_H
#define NETNICE_URING_FILES_H

#include "kernel.h"

#define NN_ANON_INODES 0x09041934
/* That a task may register with itself: such a ring may have no descriptor. */
#define NN_URINGS_OF_TASK 16
/* The file's address has flags in its last bits. */
#define NN_URING_FILE_FLAGS 7ULL

struct io_rsrc_node {
	unsigned long file_ptr;
} __core;

struct io_rsrc_data {
	unsigned int nr;
	struct io_rsrc_node **nodes;
} __core;

struct io_file_table___nodes {
	struct io_rsrc_data data;
} __core;

struct io_ring_ctx___nodes { /* since 6.13 */
	struct io_file_table___nodes file_table;
} __core;

struct io_fixed_file {
	unsigned long file_ptr;
} __core;

struct io_file_table___files {
	struct io_fixed_file *files;
} __core;

struct io_ring_ctx___files {
	struct io_file_table___files file_table;
	unsigned int nr_user_files;
} __core;

struct io_uring_task {
	struct file *registered_rings[NN_URINGS_OF_TASK];
} __core;

static __always_inline __u32 nn_uring_size(__u64 ctx)
{
	struct io_ring_ctx___nodes *nodes = (void *)ctx;
	struct io_ring_ctx___files *files = (void *)ctx;

	if (bpf_core_field_exists(nodes->file_table.data.nr))
		return BPF_CORE_READ(nodes, file_table.data.nr);
	if (bpf_core_field_exists(files->nr_user_files))
		return BPF_CORE_READ(files, nr_user_files);
	return 0;
}

/* The address of the file that is registered as the i-th, 0 = none. */
static __always_inline __u64 nn_uring_file(__u64 ctx, __u32 i)
{
	struct io_ring_ctx___nodes *nodes = (void *)ctx;
	struct io_ring_ctx___files *files = (void *)ctx;
	struct io_rsrc_node **at, *node = NULL;
	struct io_fixed_file *fixed;

	if (bpf_core_field_exists(nodes->file_table.data.nr)) {
		at = BPF_CORE_READ(nodes, file_table.data.nodes);
		bpf_probe_read_kernel(&node, sizeof(node), at + i);
		return node ? BPF_CORE_READ(node, file_ptr) &
				       ~NN_URING_FILE_FLAGS
			    : 0;
	}
	if (!bpf_core_field_exists(files->file_table.files))
		return 0;
	fixed = (void *)BPF_CORE_READ(files, file_table.files) +
		i * bpf_core_type_size(struct io_fixed_file);
	return BPF_CORE_READ(fixed, file_ptr) & ~NN_URING_FILE_FLAGS;
}

/* Is the file a ring? The kernel alone makes files on that file system. */
static __always_inline bool nn_is_uring(const struct file *f)
{
	static const char ring[] = "[io_uring]";
	char name[sizeof(ring)] = {};

	if (BPF_CORE_READ(f, f_inode, i_sb, s_magic) != NN_ANON_INODES)
		return false;
	bpf_probe_read_kernel_str(name, sizeof(name),
				  BPF_CORE_READ(f, f_path.dentry, d_name.name));
	for (__u32 i = 0; i < sizeof(ring); i++)
		if (name[i] != ring[i])
			return false;
	return true;
}

#endif
