/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Programs that are executed. The daemon compares each with its rules; the
 * program runs meanwhile.
 */
#ifndef NETNICE_EXEC_H
#define NETNICE_EXEC_H

#include "maps.h"

/* For the daemon that follows rules, and not pinned. Beside the events of
 * maps.h, which no storm of programs may displace. Room for 1,600. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} execs SEC(".maps");

/* At this point the process is its thread group's leader, and has its new
 * credentials. */
static __always_inline void nn_executed(struct task_struct *t)
{
	struct nn_exec_event *e;

	e = bpf_ringbuf_reserve(&execs, sizeof(*e), 0);
	if (!e) {
		/* The daemon sees that, and looks at all processes. */
		nn_fault(NN_FAULT_EVENT_LOST);
		return;
	}
	e->start_boottime_ns = BPF_CORE_READ(t, start_boottime);
	e->time_ns = bpf_ktime_get_ns();
	e->tgid = t->tgid;
	e->pad = 0;
	bpf_ringbuf_submit(e, 0);
}

#endif
