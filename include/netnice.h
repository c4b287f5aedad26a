/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * netnice's socket options. Header only: nothing to link.
 *
 *	uint64_t rate = 1000000;	// bytes/s, IP and TCP headers included
 *	setsockopt(fd, IPPROTO_TCP, TCP_SNDRATE, &rate, sizeof(rate));
 *
 * The value is an unsigned integer of 4 or 8 bytes, in bytes per second; 0
 * removes the limit. It may be set before or after connect, on an open
 * connection, and on a listener, whose accepted sockets inherit it. It
 * holds from the first byte on; a new connection may be 0.1 s early. Without a
 * running daemon its first ten segments (14 KB) may leave at once, and what
 * follows waits until they are paid for. Errors:
 * EINVAL (wrong length, negative), ENOPROTOOPT (netnice is not up here).
 */
#ifndef NETNICE_H
#define NETNICE_H

/* Rate at which this socket sends. */
#define TCP_SNDRATE 7001

#endif
