# The peers of a Program: argv[1] is the first of the ports, one for each behaviour, over IPv4 and IPv6, for
# TCP, MPTCP and UDP. Told "pull ADDRESS PORT" it connects to there, again and again, and reads.
import os, select, socket, struct, sys, threading, time

BEHAVIOURS = ["reads", "answers", "dawdles", "stalls", "resets", "small"]


def read(c):
    while c.recv(1 << 18):
        pass


def answer(c):
    def talk():
        try:
            while True:
                c.send(b"x")
                time.sleep(0.01)
        except OSError:
            pass
    threading.Thread(target=talk, daemon=True).start()
    read(c)


def dawdle(c):
    while c.recv(16384):
        time.sleep(0.01)


def stall(c):
    while True:
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            if select.select([c], [], [], 0.05)[0] and not c.recv(1 << 18):
                return
        time.sleep(0.3)


def reset(c):
    got = 0
    while got < 200_000:
        n = len(c.recv(1 << 16))
        if not n:
            return
        got += n
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


DO = {"reads": read, "answers": answer, "dawdles": dawdle, "stalls": stall, "resets": reset, "small": read}


def serve(listener, do):
    def one(c):
        try:
            with c:
                do(c)
        except OSError:
            pass
    while True:
        c, _ = listener.accept()
        threading.Thread(target=one, args=(c,), daemon=True).start()


def pull(host, port):
    while True:
        try:
            with socket.create_connection((host, port), timeout=1) as c:
                while c.recv(1 << 18):
                    pass
        except OSError:
            time.sleep(0.02)


def main():
    threading.stack_size(1 << 18)
    first = int(sys.argv[1])
    kept = []
    for i, name in enumerate(BEHAVIOURS):
        s = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 262)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if name == "small":
            try:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 88)
            except OSError:  # MPTCP has it not on older kernels
                pass
        if name in ("stalls", "small"):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        s.bind(("::", first + i))
        s.listen(512)
        threading.Thread(target=serve, args=(s, DO[name]), daemon=True).start()
        for kind in 0, 136:  # UDP-Lite; nobody reads them
            u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM, kind)
            u.bind(("::", first + i))
            kept.append(u)
    os.write(1, b"ready\n")
    for line in sys.stdin:
        _, host, port = line.split()
        for _ in range(2):
            threading.Thread(target=pull, args=(host, int(port)), daemon=True).start()


main()
