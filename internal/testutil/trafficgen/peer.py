# The peers of a Program: argv[1] is the first of the ports, one for each behaviour, over IPv4 and IPv6, for
# TCP, MPTCP and UDP. Told "pull ADDRESS PORT" it connects to there, again and again, and reads; told one of FLOODS
# instead of "pull" it sends.
import os, select, socket, struct, sys, threading, time

FLOODS = ["floods", "bursts", "small", "converses", "stalls", "resets", "pieces", "holes", "reorders", "duplicates"]  # of receiver.py, behind these
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


def checksum(b):
    n = sum(struct.unpack("!%dH" % (len(b) // 2), b))
    while n >> 16:
        n = (n & 0xffff) + (n >> 16)
    return ~n & 0xffff


def options(n, following):
    """Headers with options for the destination."""
    return b"".join(bytes((60 if i < n - 1 else following, 0, 1, 4, 0, 0, 0, 0)) for i in range(n))


class Pieces:
    """Sends datagrams of UDP in fragments that it makes itself, in any order, with headers before and behind that of
    the fragment."""
    id = 0

    def __init__(self, port, who):
        self.four = who[0].startswith("::ffff:")
        family = socket.AF_INET if self.four else socket.AF_INET6
        self.to = who[0].removeprefix("::ffff:")
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.connect((self.to, who[1]))
            own = s.getsockname()[0]
        self.addresses = socket.inet_pton(family, own) + socket.inet_pton(family, self.to)
        self.ports = struct.pack("!HH", port, who[1])
        self.s = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW)

    def send(self, n):
        Pieces.id = id = Pieces.id % 65535 + 1
        udp = self.ports + struct.pack("!HH", 8 + n, 0) + bytes(n)
        sum = checksum(self.addresses + struct.pack("!II", len(udp), 17) + udp) or 0xffff
        udp = udp[:6] + struct.pack("!H", sum) + udp[8:]
        before, behind = (0, 0) if self.four else ((0, 0), (1, 0), (0, 1), (4, 9))[id % 4]
        data = options(behind, 17) + udp
        first = 60 if behind else 17
        packets = []
        for at in range(0, len(data), 1200):
            part, more = data[at:at + 1200], at + 1200 < len(data)
            if self.four:
                packets.append(struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(part), id, more << 13 | at >> 3, 64, 17, 0) + self.addresses + part)
                continue
            part = options(before, 44) + struct.pack("!BBHI", first, 0, at | more, id) + part
            packets.append(struct.pack("!IHBB", 0x60000000, len(part), 60 if before else 44, 64) + self.addresses + part)
        order = (list, reversed, lambda p: p[1:] + p[:1])[id // 4 % 3]
        for packet in order(packets):
            self.s.sendto(packet, (self.to, 0))
        return n


def answer_datagrams(u, name):
    """Whoever has sent one gets many, until ANSWERED_S after the last one, or the port that is in it."""
    asked = {}
    piece = bytes({"small": 100, "bursts": 9000}.get(name, 1400))

    def to(who):
        pieces = Pieces(u.getsockname()[1], who) if name == "pieces" else None

        def send():
            if time.monotonic() > asked[who] + ANSWERED_S:
                raise OSError("not asked any more")
            if pieces:
                return pieces.send(8000)
            u.sendto(piece, who)
            return len(piece)
        while time.monotonic() < asked[who] + ANSWERED_S:
            try:
                floods(name, send)
            except OSError:
                time.sleep(0.001)
        del asked[who]
    while True:
        asks, who = u.recvfrom(100)
        if asks.isdigit():
            who = (who[0], int(asks), *who[2:])
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
