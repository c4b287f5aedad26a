/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Where on its socket's path a packet goes on that has waited for a node. The
 * socket may have another path since: it has sent to another peer, or another
 * process uses it. Then the packet waits for each node of the present path that
 * may be around the former one: one too many, where the two are of different
 * users.
 */
#ifndef NETNICE_ONWARD_H
#define NETNICE_ONWARD_H

#include "identity.h"

/* The hop of a node on a path, or NN_PATH_MAX if it is not on it any more. */
static __always_inline __u32 nn_path_hop(const struct nn_hop *hops, __u32 node)
{
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		if (!hops[i].node)
			break;
		if (hops[i].node == node)
			return i;
	}
	return NN_PATH_MAX;
}

/* The first hop of a path that may be around a node which is not on it, or
 * NN_PATH_MAX. Not static, for its stack would come on top of the caller's. */
__noinline __u32 nn_path_around(const struct nn_path *path, __u32 node)
{
	struct nn_node *n;
	__u32 kind;

	if (!path)
		return NN_PATH_MAX;
	n = bpf_map_lookup_elem(&nodes, &node);
	kind = n ? n->kind : NN_NODE_NONE;
	/* destinations are innermost on every path */
	if (kind == NN_NODE_DESTINATION)
		kind = NN_NODE_SOCKET;
	for (__u32 hop = 0; hop < NN_PATH_MAX; hop++) {
		__u32 at = path->hops[hop].node;

		if (!at)
			break;
		n = bpf_map_lookup_elem(&nodes, &at);
		if (!n || n->kind == NN_NODE_SOCKET ||
		    n->kind == NN_NODE_DESTINATION)
			continue;
		if (n->kind > kind || (n->kind == kind && kind < NN_NODE_USER))
			return hop;
	}
	return NN_PATH_MAX;
}

/* hop: of that node, as nn_path_hop says. */
static __always_inline __u32 nn_onward(const struct nn_hop *hops, __u32 node,
				       __u32 hop)
{
	if (hop < NN_PATH_MAX)
		return hop + 1;
	return nn_path_around((const struct nn_path *)hops, node);
}

#endif
