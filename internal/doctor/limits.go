package doctor

import (
	"strings"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/kernelfeatures"
)

// pacing checks the programs that hold a TCP connection to its rate.
func pacing(f *kernelfeatures.Features) api.Check {
	return needs("limits on sending", "TCP is held by each connection's own timer",
		"netnice cannot limit anything here.", f,
		part{"sockops programs", f.SockOps},
		part{"sockops at each transmit", f.HeaderOptions},
		part{"the TCP socket in sockops", f.TCPSock},
		part{"cgroup_skb programs", f.CgroupSKB},
		part{"cgroup/sock_create programs", f.CgroupSock},
		part{"values kept with sockets", f.SKStorage},
		part{"LRU maps", f.LRUHash},
		part{"ring buffers", f.RingBuf},
		part{"spin locks", f.SpinLock})
}

// whoSends checks the ways to find the present user of a socket. One way is enough.
func whoSends(f *kernelfeatures.Features) api.Check {
	const name = "who sends"
	switch {
	case f.SendTracepoint.Have:
		return api.Check{Name: name, State: OK, Found: "by tracepoint tcp_sendmsg_locked"}
	case f.SendFentry.Have:
		return api.Check{Name: name, State: OK, Found: "by fentry at tcp_sendmsg_locked"}
	case f.SendTracepoint.Unknown():
		return unknown(name)
	}
	g := look(part{"fentry", f.SendFentry})
	return api.Check{
		Name: name, State: Missing,
		Found:  "not there: " + strings.Join(append([]string{"tracepoint tcp_sendmsg_locked", "fentry at tcp_sendmsg_locked"}, g.reasons...), ", "),
		Means:  "netnice cannot tell which process uses a socket.",
		Remedy: "run Linux 6.16 or newer, or an older one with CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS, as distributions' stock kernels have it (tried on " + triedOn + ")",
	}
}

// newSockets checks how a connection gets its owner before it sends anything.
func newSockets(f *kernelfeatures.Features) api.Check {
	const (
		name  = "new connections"
		means = "netnice cannot tell whose a new connection is."
	)
	if f.TaskStorageSock.Have {
		return needs(name, "by cgroup/sock_create", means, f, part{"cgroup/sock_create programs", f.CgroupSock})
	}
	return needs(name, "by fentry at tcp_connect and inet_csk_listen_start", means, f,
		part{"fentry at tcp_connect", f.ConnectFentry},
		part{"fentry at inet_csk_listen_start", f.ListenFentry})
}

// children checks how a child process gets the limit of its parent at fork.
func children(f *kernelfeatures.Features) api.Check {
	return needs("children", "a new process shares its parent's limit",
		"A process could escape its limit by starting another one.", f,
		part{"tracepoint sched_process_fork", f.ForkTracepoint},
		part{"values kept with processes", f.TaskStorage})
}

// running checks how a limit reaches processes that run already.
func running(f *kernelfeatures.Features) api.Check {
	check := needs("running programs", "running processes and their connections can be limited",
		"A limit would only hold for programs that start after it was set.", f,
		part{"iterator task", f.IterTask},
		part{"iterator task_file", f.IterTaskFile},
		part{"iterator tcp", f.IterTCP})
	return better(check, f.IterSKStorage, api.Check{
		State:  Degraded,
		Found:  "the kernel, or a security module, does not let netnice list sockets by their state",
		Means:  "They are looked for among the open files of all processes and the connections of each network namespace, which takes longer; UDP and raw sockets that no process has in its table of files (handed on by messages, io_uring's own) are not listed.",
		Remedy: "none is needed for limits to hold; cat /sys/kernel/security/lsm names the modules",
	})
}

// openConnections checks how exactly a limit holds for a connection that was open when netnice came up.
func openConnections(f *kernelfeatures.Features) api.Check {
	return either(f.CBFlags, "a connection opened before its limit obeys it like any other", api.Check{
		Name: "open connections", State: Degraded,
		Found:  "this kernel cannot switch pacing on in an open connection",
		Means:  "Connections that were open before netnice came up share their limit in fixed, equal parts: what an idle one leaves unused is lost, and connections opened later come on top, so that the sum may exceed the limit while both exist.",
		Remedy: "netnice up at boot (systemctl enable netnice), so that connections are opened after it; or Linux " + f.CBFlags.MinKernel + " or newer",
	})
}

// socketOption checks the limits that a program can set itself.
func socketOption(f *kernelfeatures.Features) api.Check {
	check := needs("socket option", "programs can set TCP_SNDRATE and TCP_RCVRATE on their own sockets",
		"netnice cannot load its programs.", f,
		part{"cgroup/setsockopt programs", f.CgroupSockopt})
	return better(check, f.SetRetval, api.Check{
		State:  Degraded,
		Found:  "TCP_SNDRATE and TCP_RCVRATE work, but every refusal is EPERM",
		Means:  "A program that asks for something wrong is told \"operation not permitted\" instead of what was wrong.",
		Remedy: "Linux " + f.SetRetval.MinKernel + " or newer",
	})
}

// congestion reports the congestion control. netnice needs nothing of it; the report answers a frequent question.
func congestion(f *kernelfeatures.Features) api.Check {
	found := "congestion control: " + strings.Join(f.Congestion, ", ")
	if len(f.Congestion) == 0 {
		found = "congestion control: unknown"
	}
	if f.FQ.Have {
		found += "; fq is there (not needed)"
	} else {
		found += "; no fq (not needed)"
	}
	return api.Check{Name: "TCP", State: OK, Found: found}
}
