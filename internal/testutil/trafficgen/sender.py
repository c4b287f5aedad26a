# Carries out a Program: argv[1] is it as JSON, argv[2] how to reach its peers:
# {"4": address, "6": address, "port": of the first of the peers' behaviours, "serve": first port to listen on}.
# It says "ready PID", makes its sockets as it is told "make" and says "made", sends as it is told "go",
# and says "refused NAME=VALUE" of what it may not do here.
import array, ctypes, errno, json, os, signal, socket, struct, subprocess, sys, threading, time

BEHAVIOURS = ["reads", "answers", "dawdles", "stalls", "resets", "small"]
UP_TO = 40e6  # bytes/s of each sender, and
CALLS = 10e3  # calls/s
OPENS = 200   # sockets/s of those that close them
DATAGRAMS = ("udp", "udplite", "ping", "raw")
libc = ctypes.CDLL(None, use_errno=True)


def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Phase:
    """All that wait for it go on as it begins, in whatever process."""
    all = []

    def __init__(self):
        self.r, self.w = os.pipe()
        self.all.append(self)

    def wait(self):
        os.read(self.r, 1)

    def begin(self):
        os.close(self.w)
        self.all.remove(self)


def fork():
    """As os.fork; a child does not hold up what has still to begin."""
    pid = os.fork()
    if pid == 0:
        for phase in Phase.all:
            os.close(phase.w)
    return pid


class Sender:
    def __init__(self, traits, net, serve):
        self.__dict__.update(traits)
        self.traits, self.net, self.port = traits, net, serve
        self.bytes = int(self.bytes)
        self.socket, self.file, self.pipe = None, None, None
        self.refusals = set()

    def refused(self, name):
        trait = name.rstrip("2") + "=" + self.traits[name]
        if trait not in self.refusals:
            self.refusals.add(trait)
            say("refused", trait)

    # Where to, and with what kind of socket.

    def to(self):
        port = self.net["port"] + BEHAVIOURS.index(self.peer)
        if self.kind in ("ping", "raw"):
            port = 0
        if self.family == "6":
            return (self.net["6"], port)
        return (("::ffff:" if self.family == "mapped" else "") + self.net["4"], port)

    def open(self):
        family = socket.AF_INET if self.family == "4" else socket.AF_INET6
        if self.kind == "ping" and self.family == "mapped":
            family = socket.AF_INET
        six = family == socket.AF_INET6
        s = socket.socket(family, *{
            "tcp": (socket.SOCK_STREAM, 0),
            "mptcp": (socket.SOCK_STREAM, 262),
            "udp": (socket.SOCK_DGRAM, 0),
            "udplite": (socket.SOCK_DGRAM, 136),
            "ping": (socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6 if six else socket.IPPROTO_ICMP),
            "raw": (socket.SOCK_RAW, 253),
        }[self.kind])
        for name in ("option", "option2"):
            try:
                self.set(s, self.traits[name])
            except (OSError, OverflowError):
                self.refused(name)
        try:
            self.live(s)
        except OSError:
            self.refused("past")
        return s

    def set(self, s, option):
        tcp, sol = socket.IPPROTO_TCP, socket.SOL_SOCKET
        simple = {
            "sndbuf_small": (sol, socket.SO_SNDBUF, 2048),
            "sndbuf_large": (sol, socket.SO_SNDBUF, 1 << 22),
            "tos": (socket.IPPROTO_IP, socket.IP_TOS, 0x88),
            "priority": (sol, socket.SO_PRIORITY, 6),
            "ip_options": (socket.IPPROTO_IP, socket.IP_OPTIONS, b"\x01" * 40),
            "nodelay": (tcp, socket.TCP_NODELAY, 1),
            "cork": (tcp, socket.TCP_CORK, 1),
            "maxseg_100": (tcp, socket.TCP_MAXSEG, 100),
            "maxseg_536": (tcp, socket.TCP_MAXSEG, 536),
            "reno": (tcp, socket.TCP_CONGESTION, b"reno"),
            "cubic": (tcp, socket.TCP_CONGESTION, b"cubic"),
            "bbr": (tcp, socket.TCP_CONGESTION, b"bbr"),
            "keepalive": (sol, socket.SO_KEEPALIVE, 1),
            "notsent_lowat": (tcp, 25, 4096),
            "user_timeout": (tcp, 18, 500),
            "quickack": (tcp, socket.TCP_QUICKACK, 1),
            "fastopen": (tcp, 30, 1),  # TCP_FASTOPEN_CONNECT
            "pacing_low": (sol, 47, struct.pack("Q", 300_000)),
            "pacing_high": (sol, 47, struct.pack("Q", 1 << 33)),
        }
        if option in simple:
            s.setsockopt(*simple[option])
        elif option == "filter":
            code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xffff))
            s.setsockopt(sol, 26, struct.pack("HxxxxxxQ", 1, ctypes.addressof(code)))
        elif option == "md5_full":
            for peer in range(1 << 16):
                address = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s120x", 0, struct.pack("!I", 0x0a800000 + peer))
                try:
                    s.setsockopt(tcp, 14, address + struct.pack("BBHI", 0, 0, 80, 0) + bytes(80))
                except OSError as e:
                    if e.errno == errno.ENOMEM:
                        return
                    raise

    # What it was used for before.

    def live(self, s):
        any_ = "" if s.family == socket.AF_INET else "::"
        here = "127.0.0.1" if s.family == socket.AF_INET else "::ffff:127.0.0.1" if self.family == "mapped" else "::1"
        if self.past == "bound":
            s.bind((any_, 0))
        elif self.past == "reconnected":
            s.connect(self.to())
            self.disconnect(s)
        elif self.past == "loopback":
            with socket.create_server(("127.0.0.1", 0) if self.family != "6" else ("::1", 0), family=socket.AF_INET6 if self.family == "6" else socket.AF_INET) as listener:
                s.connect((here,) + listener.getsockname()[1:2])
                s.send(b"x")
                self.disconnect(s)
        elif self.past == "listened":
            s.bind((any_, 0))
            s.listen()
            s.shutdown(socket.SHUT_RDWR)

    def disconnect(self, s):
        if libc.connect(s.fileno(), bytes(28), 28):
            raise OSError(ctypes.get_errno(), "disconnect")

    # How it sends.

    def ready(self, s):
        """Connects it, but where each call says where to."""
        if self.call != "sendto":
            s.connect(self.to())

    def once(self, s):
        """One call; returns how many bytes it took."""
        if self.call in ("file", "splice") and self.file is None:
            self.file = os.memfd_create("sent")
            os.truncate(self.file, self.bytes)
            self.pipe = os.pipe()
        n = self.bytes
        if self.kind in DATAGRAMS:
            n = max(min(n, 65000), 8)
        data = memoryview(ZEROS)[:n]
        if self.kind == "ping":
            data = struct.pack("!BBHHH", 128 if s.family == socket.AF_INET6 else 8, 0, 0, 1, 1) + bytes(n - 8)
        if self.call == "sendto":
            return s.sendto(data, self.to())
        if self.call == "msg":
            return s.sendmsg([data[:n // 2], data[n // 2:]])
        if self.call == "more":
            return s.send(data, socket.MSG_MORE)
        if self.call == "urgent":
            return s.send(data, socket.MSG_OOB)
        if self.call == "file":
            return os.sendfile(s.fileno(), self.file, 0, n)
        if self.call == "splice":
            got = os.splice(self.file, self.pipe[1], min(n, 65536), offset_src=0)
            sent = 0
            while sent < got:
                sent += os.splice(self.pipe[0], s.fileno(), got - sent)
            return got
        if self.call == "segments":
            part = min(max(n // 40, 1), 1200)
            return s.sendmsg([data[:min(n, part * 40)]], [(17, 103, struct.pack("H", part))])
        if self.call == "zerocopy":
            s.setsockopt(socket.SOL_SOCKET, 60, 1)
            try:
                return s.send(data, 0x4000000)
            except OSError as e:
                if e.errno != errno.ENOBUFS:
                    raise
            try:
                while True:
                    s.recvmsg(1, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
            except BlockingIOError:
                return 0
        return s.send(data)

    def flood(self, s, until=None):
        due = 0
        while until is None or time.monotonic() < until:
            try:
                n = self.once(s)
            except OSError as e:
                if e.errno in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMSGSIZE):
                    self.refused("call")
                    if self.kind in DATAGRAMS and e.errno == errno.EMSGSIZE:
                        self.bytes = 1200
                    else:
                        self.call = "send"
                if self.kind not in DATAGRAMS:
                    raise
                n = 0
            now = time.monotonic()
            due = max(due, now - 0.01) + max(n / UP_TO, 1 / CALLS)
            if due > now + 0.001:
                time.sleep(due - now)

    # What becomes of its sockets.

    def make(self):
        if self.life in ("keeps", "shares") or self.life == "crowd" and self.place in ("late", "executed", "orphan"):
            if self.handle in ("passed", "kept"):
                return self.from_another()
            s = self.open()
            self.ready(s)
            return s
        if self.life == "serves":
            family = socket.AF_INET if self.family == "4" else socket.AF_INET6
            s = socket.socket(family, socket.SOCK_STREAM, 262 if self.kind == "mptcp" else 0)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            for name in ("option", "option2"):
                try:
                    self.set(s, self.traits[name])
                except (OSError, OverflowError):
                    self.refused(name)
            s.bind(("" if family == socket.AF_INET else "::", self.port))
            s.listen(64)
            return s
        return None

    def from_another(self):
        ours, theirs = socket.socketpair()
        if fork() == 0:
            try:
                s = self.open()
                self.ready(s)
                socket.send_fds(theirs, [b"x"], [s.fileno()])
                if self.handle == "kept":
                    signal.pause()
            finally:
                os._exit(0)
        theirs.close()
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
        if not fds:
            raise OSError(errno.EPIPE, "no socket was passed")
        return socket.socket(fileno=fds[0])

    def handled(self, s):
        if self.handle == "high":
            os.dup2(s.fileno(), 1500)
            s.detach()
            return socket.socket(fileno=1500)
        if self.handle == "copied":
            c = s.dup()
            s.close()
            return c
        return s

    def send(self):
        """For ever; what fails is begun anew."""
        while True:
            try:
                self.send_until_it_fails()
            except OSError:
                pass
            self.socket = None
            time.sleep(0.005)

    def send_until_it_fails(self):
        s = self.socket
        if self.life == "serves":
            s = s or self.make()
            while True:
                c, _ = s.accept()
                threading.Thread(target=self.quietly, args=(c,), daemon=True).start()
        if self.life in ("closes", "aborts"):
            self.opens_and_closes()
        if self.life == "crowd":
            threads = [threading.Thread(target=self.quietly, args=(None, 1), daemon=True) for _ in range(12)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            return
        if s is None:
            s = self.open()
            self.ready(s)
        s = self.handled(s)
        if self.life == "shares":
            for _ in range(3):
                threading.Thread(target=self.quietly, args=(s,), daemon=True).start()
        with s:
            self.flood(s)

    def quietly(self, s, seconds=None):
        try:
            if s is None:
                s = self.open()
                self.ready(s)
            with s:
                self.flood(s, seconds and time.monotonic() + seconds)
        except OSError:
            pass

    def opens_and_closes(self):
        while True:
            begin = time.monotonic()
            with self.open() as s:
                s.setblocking(False) if self.kind in DATAGRAMS else s.settimeout(1)
                if self.life == "aborts":
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                try:
                    self.ready(s)
                    for _ in range(2):
                        self.once(s)
                except OSError:
                    pass
            time.sleep(max(begin + 1 / OPENS - time.monotonic(), 0))

    # Where it runs.

    def run(self, make, made, go):
        """In its own thread or process: those that have their sockets before the others begin."""
        make.wait()
        try:
            self.socket = self.make()
        except OSError:
            pass
        os.write(made, b"x")
        go.wait()
        if self.place in ("late", "orphan"):
            if fork() != 0:
                return
            if self.place == "orphan" and fork() != 0:
                os._exit(0)
            self.send()
        if self.place == "executed":
            fd = -1
            if self.socket is not None:
                fd = self.socket.fileno()
                os.set_inheritable(fd, True)
            args = json.dumps({"traits": self.traits, "net": self.net, "serve": self.port, "fd": fd})
            subprocess.Popen([sys.executable, sys.argv[0], "--executed", args], close_fds=False)
            return
        self.send()


ZEROS = bytes(1 << 20)


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    if sys.argv[1] == "--executed":
        x = json.loads(sys.argv[2])
        s = Sender(x["traits"], x["net"], x["serve"])
        if x["fd"] >= 0:
            s.socket = socket.socket(fileno=x["fd"])
        s.send()
    program, net = json.loads(sys.argv[1]), json.loads(sys.argv[2])
    make, go = Phase(), Phase()
    heard, made = os.pipe()
    threads, all_ = [], [Sender(t, net, net["serve"] + i) for i, t in enumerate(program["senders"])]
    for s in all_:
        if s.place not in ("child", "namespace"):
            threads.append(s)
        elif fork() == 0:
            try:
                if s.place == "namespace" and libc.unshare(0x10000000):
                    s.refused("place")
                s.run(make, made, go)
            finally:
                os._exit(0)
    for s in threads:
        threading.Thread(target=s.run, args=(make, made, go), daemon=True).start()
    say("ready", os.getpid())
    sys.stdin.readline()
    make.begin()
    for _ in all_:
        os.read(heard, 1)
    say("made")
    sys.stdin.readline()
    go.begin()
    say("going")
    while True:
        signal.pause()


main()
