# The peers of a Program: argv[1] is the first of the ports, one for each behaviour, over IPv4 and IPv6, for
# TCP, MPTCP and UDP. Told "pull ADDRESS PORT" it connects to there, again and again, and reads; told one of FLOODS
# instead of "pull" it sends.
import os, select, socket, struct, sys, threading, time

FLOODS = ["floods", "bursts", "small", "converses", "stalls", "resets", "holes", "reorders", "duplicates"]  # of receiver.py, behind these
ANSWERED_S = 0.2  # datagrams are sent for so long after one has come
FLOOD = 10e6      # bytes/s of each that is sent to
# What happens to the packets of the last three on their way is the work of testbed.Adverse.
BEHAVIOURS = ["reads", "answers", "dawdles", "stalls", "resets", "small", "shrinks", "holes", "reorders", "duplicates"]


def read(c):
    while c.recv(1 << 18):
        pass


def answer(c, piece=b"x"):
    def talk():
        try:
            while True:
                c.send(piece)
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


def shrink(c):
    """Its window grows and shrinks again, while what fills it is on its way."""
    while True:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            if select.select([c], [], [], 0.05)[0] and not c.recv(1 << 18):
                return
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        time.sleep(0.1)


def answer_in_segments(c):
    """Each answer is a segment, of which some get lost on their way."""
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    answer(c, bytes(64))


DO = {"reads": read, "answers": answer, "dawdles": dawdle, "stalls": stall, "resets": reset, "small": read,
      "shrinks": shrink, "holes": answer_in_segments, "reorders": answer, "duplicates": answer}


def floods(name, send):
    """Sends for ever as the behaviour has it; send has a number of bytes and returns how many it took."""
    sent, begin = 0, time.monotonic()
    while True:
        now = time.monotonic()
        if name == "stalls" and int(now / 0.3) % 2 or name == "bursts" and int(now / 0.1) % 4:
            time.sleep(0.02)
            begin, sent = time.monotonic(), 0
            continue
        if name == "resets" and sent > 200_000:
            raise OSError("enough")
        sent += send()
        rate = 4 * FLOOD if name == "bursts" else FLOOD
        ahead = begin + sent / rate - now
        if ahead > 0.002:
            time.sleep(ahead)
        elif ahead < -0.1:
            begin, sent = now, 0


def flood(name):
    def do(c):
        if name == "resets":
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if name == "converses":
            threading.Thread(target=read_ignoring_errors, args=(c,), daemon=True).start()
        piece = bytes(100 if name == "small" else 65536)
        floods(name, lambda: c.send(piece))
    return do


def read_ignoring_errors(c):
    try:
        read(c)
    except OSError:
        pass


def answer_datagrams(u, name):
    """Whoever has sent one gets many, until ANSWERED_S after the last one."""
    asked = {}
    piece = bytes({"small": 100, "bursts": 9000}.get(name, 1400))

    def to(who):
        def send():
            if time.monotonic() > asked[who] + ANSWERED_S:
                raise OSError("not asked any more")
            u.sendto(piece, who)
            return len(piece)
        while time.monotonic() < asked[who] + ANSWERED_S:
            try:
                floods(name, send)
            except OSError:
                time.sleep(0.001)
        del asked[who]
    while True:
        _, who = u.recvfrom(100)
        new = who not in asked
        asked[who] = time.monotonic()
        if new:
            threading.Thread(target=to, args=(who,), daemon=True).start()


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


def visit(host, port, do):
    while True:
        try:
            with socket.create_connection((host, port), timeout=1) as c:
                do(c)
        except OSError:
            time.sleep(0.02)


def main():
    threading.stack_size(1 << 18)
    first = int(sys.argv[1])
    kept = []
    for i, name in enumerate(BEHAVIOURS + FLOODS):
        do = DO[name] if i < len(BEHAVIOURS) else flood(name)
        s = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 262)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if name == "small":
            try:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 88)
            except OSError:  # MPTCP has it not on older kernels
                pass
        if name in ("stalls", "small") and i < len(BEHAVIOURS):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        s.bind(("::", first + i))
        s.listen(512)
        threading.Thread(target=serve, args=(s, do), daemon=True).start()
        for kind in 0, 136:  # UDP-Lite; nobody reads those of BEHAVIOURS
            u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM, kind)
            u.bind(("::", first + i))
            kept.append(u)
            if i >= len(BEHAVIOURS):
                threading.Thread(target=answer_datagrams, args=(u, name), daemon=True).start()
    os.write(1, b"ready\n")
    for line in sys.stdin:
        what, host, port = line.split()
        do = read if what == "pull" else flood(what)
        for _ in range(2):
            threading.Thread(target=visit, args=(host, int(port), do), daemon=True).start()


main()
