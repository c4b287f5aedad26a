/* Reserve a part of the link for one connection: reserve ADDRESS PORT PERIOD_US
 * SLICE_US. Prints what is reserved and what could be, in bytes per second, and
 * sends for a second. */
#include <arpa/inet.h>
#include <netnice.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int main(int argc, char **argv)
{
	struct netnice_reservation r = {0};
	struct sockaddr_in to = {.sin_family = AF_INET};
	static char data[1 << 14];
	time_t end;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (argc != 5 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1) {
		fprintf(stderr, "usage: reserve ADDRESS PORT PERIOD_US SLICE_US\n");
		return 2;
	}
	to.sin_port = htons((uint16_t)atoi(argv[2]));
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to))) {
		perror("connect");
		return 1;
	}
	r.period_ns = strtoull(argv[3], NULL, 10) * 1000;
	r.slice_ns = strtoull(argv[4], NULL, 10) * 1000;
	if (netnice_reserve(fd, &r)) {
		printf("refused: %s, %llu left\n", strerror(errno),
		       (unsigned long long)r.left_bytes_per_sec);
		return 1;
	}
	printf("reserved: %llu, %llu left\n", (unsigned long long)r.bytes_per_sec,
	       (unsigned long long)r.left_bytes_per_sec);
	fflush(stdout);
	for (end = time(NULL) + 2; time(NULL) < end;)
		if (write(fd, data, sizeof(data)) < 0)
			break;
	return 0;
}
