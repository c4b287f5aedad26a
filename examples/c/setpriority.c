/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits a process with its children by setpriority(2), or shows its limit.
 *
 *	cc -I../../include -o setpriority setpriority.c
 *	./setpriority 1234 131072
 */
#define NETNICE_SETPRIORITY
#include <netnice.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int limit;

	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: %s PID [BYTES_PER_SEC]\n", argv[0]);
		return 2;
	}
	if (argc == 3 &&
	    setpriority(PRIO_NET, (id_t)atoi(argv[1]), atoi(argv[2]))) {
		perror("setpriority");
		return 1;
	}
	limit = getpriority(PRIO_NET, (id_t)atoi(argv[1]));
	if (limit < 0) {
		perror("getpriority");
		return 1;
	}
	printf("%d bytes/s\n", limit);
	return 0;
}
