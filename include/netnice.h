/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * netnice's socket options, and limits of processes and users by them. Header
 * only: nothing to link. netnice(3) has all of it.
 *
 *	uint64_t rate = 1000000;	// bytes/s, IP and TCP headers included
 *	setsockopt(fd, IPPROTO_TCP, TCP_SNDRATE, &rate, sizeof(rate));
 *
 * The value is an unsigned integer of 4 or 8 bytes, in bytes per second; 0
 * removes the limit. The level is IPPROTO_TCP for TCP, IPPROTO_UDP for UDP. It
 * may be set before or after connect, on an open connection, and on a listener,
 * whose accepted sockets inherit it, each its own. Errors: EINVAL (wrong
 * length, negative), ENOPROTOOPT (netnice is not up here), EOPNOTSUPP (what is
 *received, and datagrams, need its daemon, which does not run).
 *
 *	netnice_set(PRIO_NET, 0, NETNICE_TOTAL, 500000);	// this process
 *
 * With NETNICE_SETPRIORITY defined before it is included, setpriority(2) and
 * getpriority(2) know PRIO_NET and PRIO_NET_USER, too:
 *
 *	setpriority(PRIO_NET, 1234, 128 * 1024);
 */
#ifndef NETNICE_H
#define NETNICE_H

/* docs/reference/socket-options.md follows from these comments. */

/* The rate at which this socket sends.
 * Level: IPPROTO_TCP for TCP, IPPROTO_UDP for UDP.
 * Value: uint64_t or uint32_t; getsockopt reads it.
 * Unit: bytes/s, IP and TCP headers included.
 * Range: 1 to 2^63 - 1, of 4 bytes 1 to 2^32 - 2; 0 removes the limit.
 * Errors: EINVAL (wrong length, negative), ENOPROTOOPT (netnice is not up, or
 * the level is not the socket's), EOPNOTSUPP (datagrams: no daemon runs). */
#define TCP_SNDRATE 7001

/* The rate at which this socket receives. Traffic of the machine to itself does
 * not count.
 * Level: IPPROTO_TCP for TCP, IPPROTO_UDP for UDP.
 * Value: uint64_t or uint32_t; getsockopt reads it.
 * Unit: bytes/s, IP and TCP headers included.
 * Range: 1 to 2^63 - 1, of 4 bytes 1 to 2^32 - 2; 0 removes the limit.
 * Errors: EINVAL (wrong length, negative), ENOPROTOOPT (netnice is not up, or
 * the level is not the socket's), EOPNOTSUPP (no daemon runs). */
#define TCP_RCVRATE 7002

/* A slice of its link's time for this socket. netnice_reserve asks for it.
 * Level: IPPROTO_TCP for TCP, IPPROTO_UDP for UDP.
 * Value: struct netnice_reservation; getsockopt reads the answer.
 * Unit: ns.
 * Range: a period of 1 ms to 1 s, a slice of up to the period; 0 releases.
 * Errors: EPERM (nothing was granted), EBUSY (it does not fit), ENODEV (the
 * socket leaves by no link with a limit, or by none yet), EINVAL, ENOPROTOOPT,
 * EOPNOTSUPP (MPTCP, or no daemon runs), EAGAIN (asked too often). */
#define NETNICE_RESERVE 7003
/* 7004 is kept. */

/* A limit of a process or a user, on any TCP socket. The socket's own traffic
 * is not concerned. netnice_set and netnice_get ask by it.
 * Level: IPPROTO_TCP.
 * Value: struct netnice_limit; getsockopt reads the answer.
 * Unit: bytes/s.
 * Range: 1 to 2^63 - 1; 0 removes the limit, NETNICE_ASK only asks.
 * Errors: EPERM (not the caller's), ESRCH (no such process or user), EINVAL,
 * ENOPROTOOPT (netnice is not up), EOPNOTSUPP (no daemon runs), EBUSY (no
 * further limit fits), EAGAIN (asked too often). */
#define NETNICE_LIMIT 7005

/* values of which, beside the PRIO_PROCESS and PRIO_USER of getpriority */
#define PRIO_NET	3 /* a process and its children, by its pid */
#define PRIO_NET_USER	4 /* a user, by the uid */
#define PRIO_POWER	5 /* no limit: a process's power, see set_power */

#define NETNICE_SEND	0 /* what is sent */
#define NETNICE_RECEIVE 1 /* what is received */
#define NETNICE_TOTAL	2 /* sent and received together */

/* NETNICE_ASK as the value, or as the slice, asks for the one in force. Nothing
 * is changed. */
#define NETNICE_ASK (~0ULL)

#ifndef __bpf__

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef __GLIBC__
typedef __priority_which_t netnice_which;
#else
typedef int netnice_which;
#endif

/* The value for PRIO_POWER is the power plus this number, so that it is never
 * below 0. */
#define NETNICE_POWER_0 256

struct netnice_limit {
	uint32_t which;		/* PRIO_NET, PRIO_NET_USER or PRIO_POWER */
	uint32_t who;		/* 0 = the caller */
	uint32_t direction;	/* NETNICE_SEND, _RECEIVE or _TOTAL */
	uint32_t error;		/* answer: errno, EINPROGRESS = none yet */
	uint64_t bytes_per_sec; /* answer: limit in force, 0 = no limit */
};

#define NETNICE_ANSWER_MS 5000 /* how long functions wait for an answer */

/* Ask by an option, and wait until the answer is in the same struct, whose
 * error it says. 0, or -1 and errno. */
static inline int netnice_answered(int fd, int level, int option, void *asked,
				   socklen_t size, uint32_t *error)
{
	int ms;

	if (setsockopt(fd, level, option, asked, size))
		return -1;
	for (ms = 0;; ms++) {
		socklen_t had = size;

		if (getsockopt(fd, level, option, asked, &had))
			return -1;
		if (*error != EINPROGRESS)
			break;
		if (ms == NETNICE_ANSWER_MS) {
			*error = ETIMEDOUT;
			break;
		}
		poll(0, 0, 1);
	}
	if (!*error)
		return 0;
	errno = (int)*error;
	return -1;
}

static inline int netnice_limit_ask(struct netnice_limit *l)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), failed, error;

	if (fd < 0 && errno == EAFNOSUPPORT)
		fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	failed = netnice_answered(fd, IPPROTO_TCP, NETNICE_LIMIT, l, sizeof(*l),
				  &l->error);
	error = errno;
	close(fd);
	errno = error;
	return failed;
}

/* Limit a process with its children, or a user; 0 lifts. In the manner of
 * setpriority: anybody may for what is theirs, without privileges. 0, or -1 and
 * errno: EPERM, ESRCH, EINVAL, ENOPROTOOPT, EOPNOTSUPP (no daemon runs). */
static inline int netnice_set(int which, unsigned int who, int direction,
			      uint64_t bytes_per_sec)
{
	struct netnice_limit l;

	l.which = (uint32_t)which;
	l.who = who;
	l.direction = (uint32_t)direction;
	l.error = 0;
	l.bytes_per_sec = bytes_per_sec;
	if (bytes_per_sec >> 63) {
		errno = EINVAL;
		return -1;
	}
	return netnice_limit_ask(&l);
}

/* A reservation is a slice of the time of the link by which the connection
 * leaves, in each period. The unused part of a slice is lost. */
struct netnice_reservation {
	uint64_t period_ns; /* 1 ms to 1 s */
	uint64_t slice_ns;  /* up to the period; 0 releases */
	uint32_t extra; /* a part of what is left, too; else no more by it */
	uint32_t error; /* answer, as above */
	uint64_t bytes_per_sec;	     /* answer: rate of the reservation */
	uint64_t left_bytes_per_sec; /* answer: rate that is still free */
};

/* Reserve for a connected socket, of TCP or UDP, or ask by a slice of
 * NETNICE_ASK; the answer is put into r. It goes with the socket. 0, or -1 and
 * an errno of NETNICE_RESERVE. After EBUSY see what is left. */
static inline int netnice_reserve(int fd, struct netnice_reservation *r)
{
	socklen_t size = sizeof(int);
	int level;

	if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &level, &size))
		return -1;
	if (level != IPPROTO_UDP)
		level = IPPROTO_TCP;
	r->error = 0;
	return netnice_answered(fd, level, NETNICE_RESERVE, r, sizeof(*r),
				&r->error);
}

/* The limit that is in force on it, the lower of all owners'; 0 = none. */
static inline int netnice_get(int which, unsigned int who, int direction,
			      uint64_t *bytes_per_sec)
{
	struct netnice_limit l;

	l.which = (uint32_t)which;
	l.who = who;
	l.direction = (uint32_t)direction;
	l.error = 0;
	l.bytes_per_sec = NETNICE_ASK;
	if (netnice_limit_ask(&l))
		return -1;
	*bytes_per_sec = l.bytes_per_sec;
	return 0;
}

/* setpriority(2), the netnice paper's system call. PRIO_NET and PRIO_NET_USER
 * are limits of what is sent and received together, in bytes per second. All
 * else is the kernel's. 0, or -1 and errno, as netnice_set. */
static inline int netnice_setpriority(int which, id_t who, int value)
{
	if (which != PRIO_NET && which != PRIO_NET_USER)
		return setpriority((netnice_which)which, who, value);
	if (value < 0) {
		errno = EINVAL;
		return -1;
	}
	return netnice_set(which, who, NETNICE_TOTAL, (uint64_t)value);
}

/* getpriority(2), likewise: the limit in force, 0 = none, INT_MAX if it is more
 * than that. Or -1 and errno. */
static inline int netnice_getpriority(int which, id_t who)
{
	uint64_t bytes_per_sec;

	if (which != PRIO_NET && which != PRIO_NET_USER)
		return getpriority((netnice_which)which, who);
	if (netnice_get(which, who, NETNICE_TOTAL, &bytes_per_sec))
		return -1;
	return bytes_per_sec > INT_MAX ? INT_MAX : (int)bytes_per_sec;
}

static inline int netnice_power_ask(pid_t pid, uint64_t value, int *n)
{
	struct netnice_limit l;

	l.which = PRIO_POWER;
	l.who = (uint32_t)pid;
	l.direction = 0;
	l.error = 0;
	l.bytes_per_sec = value;
	if (netnice_limit_ask(&l))
		return -1;
	if (n)
		*n = (int)l.bytes_per_sec - NETNICE_POWER_0;
	return 0;
}

/* What a process and its children get of the processors. n from 1 to 100 is per
 * cent of one, beyond that of several. -255 to -1 is a priority below the
 * ordinary, which is 0 and takes back what was set. pid 0 = the caller. Anybody
 * may for what is theirs; set by an administrator n is guaranteed, too. 0, or
 * -1 and errno: EPERM, ESRCH, EINVAL, EBUSY (so much cannot be guaranteed),
 * ENOPROTOOPT, EOPNOTSUPP (no daemon runs, or the kernel cannot). */
static inline int set_power(pid_t pid, int n)
{
	if (pid < 0 || n < -255) {
		errno = EINVAL;
		return -1;
	}
	return netnice_power_ask(pid, (uint64_t)(n + NETNICE_POWER_0), 0);
}

/* get_power reads the power in force: the lowest that any owner has set. */
static inline int get_power(pid_t pid, int *n)
{
	if (pid < 0) {
		errno = EINVAL;
		return -1;
	}
	return netnice_power_ask(pid, NETNICE_ASK, n);
}

#ifdef NETNICE_SETPRIORITY
#define setpriority netnice_setpriority
#define getpriority netnice_getpriority
#endif

#endif
#endif
