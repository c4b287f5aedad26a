/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets the rates of sockets, of this process and of this user, and reads them back.
 *
 *	cc -I../../include -o rates rates.c
 *	./rates tcp4:send:8:1000000 accepted6:receive:8:500000 process:total:8:2000000
 *
 * A socket, what it is to do, the size of the value in bytes, and the value. See
 * ../README.md.
 */
#include <arpa/inet.h>
#include <netnice.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int listener(int family, struct sockaddr_storage *at, socklen_t *size)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)at;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)at;
	int fd = socket(family, SOCK_STREAM, 0);

	memset(at, 0, sizeof(*at));
	at->ss_family = family;
	*size = family == AF_INET6 ? sizeof(*v6) : sizeof(*v4);
	if (family == AF_INET6)
		v6->sin6_addr = in6addr_loopback;
	else
		v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (struct sockaddr *)at, *size) ||
	    listen(fd, 1) || getsockname(fd, (struct sockaddr *)at, size)) {
		perror("listen");
		exit(1);
	}
	return fd;
}

/* The options of a socket. It returns a number of errno. */
static int set(const char *kind, int what, int size, int64_t value,
	       uint64_t *got)
{
	int family = kind[strlen(kind) - 1] == '6' ? AF_INET6 : AF_INET;
	int level = IPPROTO_TCP, type = SOCK_STREAM, fd, other = -1, result = 0;
	struct sockaddr_storage at;
	char bytes[16] = {0};
	socklen_t len;

	if (!strncmp(kind, "udp", 3)) {
		level = IPPROTO_UDP;
		type = SOCK_DGRAM;
	}
	if (!strcmp(kind, "unix"))
		family = AF_UNIX;
	if (!strncmp(kind, "accepted", 8))
		fd = listener(family, &at, &len);
	else
		fd = socket(family, type, 0);
	if (!strncmp(kind, "open", 4)) {
		other = listener(family, &at, &len);
		if (connect(fd, (struct sockaddr *)&at, len))
			perror("connect");
	}

	memcpy(bytes, &value, sizeof(value)); /* of a little-endian machine */
	if (setsockopt(fd, level, what, bytes, size))
		result = errno;

	if (!result && !strncmp(kind, "accepted", 8)) {
		other = socket(family, type, 0);
		if (connect(other, (struct sockaddr *)&at, len))
			perror("connect");
		close(other);
		other = fd;
		fd = accept(other, NULL, NULL);
	}
	len = sizeof(*got);
	if (!result && getsockopt(fd, level, what, got, &len))
		result = errno;
	close(fd);
	if (other >= 0)
		close(other);
	return result;
}

/* A limit of this process (with its children), or of this user. */
static int limit(const char *kind, int direction, int64_t value, uint64_t *got)
{
	int which = strcmp(kind, "user") ? PRIO_NET : PRIO_NET_USER;
	unsigned int who = !strcmp(kind, "init") ? 1 : 0; /* 0: mine */

	if (netnice_set(which, who, direction, (uint64_t)value) ||
	    netnice_get(which, who, direction, got))
		return errno;
	return netnice_set(which, who, direction, 0) ? errno : 0;
}

static const char *name(int err)
{
	switch (err) {
	case EINVAL:
		return "EINVAL";
	case EPERM:
		return "EPERM";
	case ENOPROTOOPT:
		return "ENOPROTOOPT";
	case EOPNOTSUPP:
		return "EOPNOTSUPP";
	}
	return strerror(err);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		char kind[16], what[16];
		uint64_t got = 0;
		int size, direction, err;
		long long value;

		if (sscanf(argv[i], "%15[^:]:%15[^:]:%d:%lld", kind, what,
			   &size, &value) != 4) {
			fprintf(stderr, "%s: SOCKET:WHAT:SIZE:VALUE\n", argv[i]);
			return 2;
		}
		direction = !strcmp(what, "send")      ? NETNICE_SEND
			    : !strcmp(what, "receive") ? NETNICE_RECEIVE
						       : NETNICE_TOTAL;
		if (!strcmp(kind, "process") || !strcmp(kind, "user") ||
		    !strcmp(kind, "init"))
			err = limit(kind, direction, value, &got);
		else
			err = set(kind,
				  direction == NETNICE_SEND ? TCP_SNDRATE
							    : TCP_RCVRATE,
				  size, value, &got);
		if (err)
			printf("%s %s\n", argv[i], name(err));
		else
			printf("%s %llu\n", argv[i], (unsigned long long)got);
	}
	return 0;
}
