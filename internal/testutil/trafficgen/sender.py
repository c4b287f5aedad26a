# Carries out a Program: argv[1] is it as JSON, argv[2] how to reach its peers:
# {"4": address, "6": address, "own6": this machine's, "port": of the first of the peers' behaviours, "serve": first port to listen on,
# "slower": how many times}.
# It says "ready PID", makes its sockets as it is told "make" and says "made", sends as it is told "go",
# and says "refused NAME=VALUE" of what it may not do here, and "sent N" as the Nth sender's first bytes go.
# It runs behind the prelude of internal/e2e, whose attach_filter it calls.
import ctypes, errno, fcntl, json, mmap, os, platform, select, signal, socket, struct, subprocess, sys, threading, time

BEHAVIOURS = ["reads", "answers", "dawdles", "stalls", "resets", "small", "shrinks", "holes", "reorders", "duplicates"]
UP_TO = 40e6  # bytes/s of each thread that sends, and
CALLS = 10e3  # calls/s
OPENS = 200   # sockets/s of those that close them
MOST_PAUSE = 0.1  # seconds between two calls, also after one that took a gigabyte
AT_ONCE = 8   # messages of one call of sendmmsg
ISOLATED = 0x50000000  # CLONE_NEWUSER and CLONE_NEWNET
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
        self.all.remove(self)
        os.close(self.w)


def fork():
    """As os.fork; a child does not hold up what has still to begin."""
    pid = os.fork()
    if pid == 0:
        for phase in Phase.all:
            os.close(phase.w)
        Phase.all.clear()
    return pid


class Ring:
    """An io_uring with one registered file, which it has itself: the descriptor may be closed. It has one registered
    buffer if it is wanted."""
    SETUP, ENTER, REGISTER = 425, 426, 427
    SQES, CQ_RING = 0x10000000, 0x8000000
    READ_FIXED, WRITE_FIXED, SEND, RECV, SEND_ZC = 4, 5, 26, 27, 47
    SEND_FIXED, NOTIFICATION = 4, 8  # of the buffer that has been registered; flag of a completion that is no result
    BUFFER = 1 << 16

    def __init__(self, fd, buffer=False):
        params = ctypes.create_string_buffer(120)
        self.fd = self.call(self.SETUP, 8, params)
        fields = struct.unpack("30I", params.raw)
        _, self.sq_tail, _, _, _, _, sq_array, *_ = fields[10:20]
        self.cq_head, self.cq_tail, _, _, _, self.cqes, *_ = fields[20:30]
        self.sq = mmap.mmap(self.fd, sq_array + 4 * fields[0])  # its array is zero: all submissions are the first entry
        self.cq = mmap.mmap(self.fd, self.cqes + 16 * fields[1], offset=self.CQ_RING)
        self.sqes = mmap.mmap(self.fd, 64 * fields[0], offset=self.SQES)
        self.submitted, self.seen = 0, 0
        self.entries = fields[1]
        self.call(self.REGISTER, self.fd, 2, ctypes.byref(ctypes.c_int(fd)), 1)
        if buffer:
            self.buffer = ctypes.create_string_buffer(self.BUFFER)
            self.at = ctypes.addressof(self.buffer)
            self.call(self.REGISTER, self.fd, 0, struct.pack("QQ", self.at, self.BUFFER), 1)

    def call(self, *args):
        n = libc.syscall(*args)
        if n < 0:
            raise OSError(ctypes.get_errno(), "io_uring")
        return n

    def send(self, data, n):
        return self.do(self.SEND, data, n)

    def receive(self, room, n):
        return self.do(self.RECV, room, n)

    def write(self, n):
        return self.do(self.WRITE_FIXED, self.at, min(n, self.BUFFER))

    def read(self, n):
        return self.do(self.READ_FIXED, self.at, min(n, self.BUFFER))

    def zerocopy(self, n):
        return self.do(self.SEND_ZC, self.at, min(n, self.BUFFER), self.SEND_FIXED)

    def do(self, what, data, n, priority=0):
        self.sqes[:64] = struct.pack("<BBHiQQIIQHHiQQ", what, 1, priority, 0, 0, data, n, 0, 0, 0, 0, 0, 0, 0)
        self.submitted += 1
        self.sq[self.sq_tail:self.sq_tail + 4] = struct.pack("I", self.submitted & 0xffffffff)
        self.call(self.ENTER, self.fd, 1, 1, 1, None, 0)
        while True:
            result = self.result()
            if result is not None:
                break
            self.call(self.ENTER, self.fd, 0, 1, 1, None, 0)
        if result < 0:
            raise OSError(-result, "io_uring")
        return result

    def result(self):
        """That of the request, or None before it is there."""
        while struct.unpack("I", self.cq[self.cq_tail:self.cq_tail + 4])[0] != self.seen & 0xffffffff:
            at = self.cqes + 16 * (self.seen % self.entries)
            result, flags = struct.unpack("iI", self.cq[at + 8:at + 16])
            self.seen += 1
            self.cq[self.cq_head:self.cq_head + 4] = struct.pack("I", self.seen & 0xffffffff)
            if not flags & self.NOTIFICATION:
                return result
        return None

    def __del__(self):
        if hasattr(self, "fd"):
            os.close(self.fd)


class Sender:
    afterwards = "nothing"  # programs that receive do not choose it

    @staticmethod
    def answer():
        """Who asks wants to know what was received."""

    def __init__(self, traits, net, number):
        self.__dict__.update(traits)
        self.traits, self.net, self.number = traits, net, number
        self.bytes = int(self.bytes)
        slower = net.get("slower", 1)
        self.up_to, self.calls, self.opens = UP_TO / slower, CALLS / slower, OPENS / slower
        self.socket = None
        self.all_places, self.next_place = None, 0
        self.own = threading.local()  # what each thread splices from
        self.said = set()
        self.has_sent = False

    def refused(self, name):
        self.say_once("refused", name.rstrip("2") + "=" + self.traits[name])

    def say_once(self, *words):
        if words not in self.said:
            self.said.add(words)
            say(*words)

    # Where to, and with what kind of socket.

    def peer_port(self):
        if self.peer == "itself":
            return 1  # nobody's
        return self.net["port"] + BEHAVIOURS.index(self.peer)

    def peer_address(self):
        port = self.peer_port()
        if self.kind in ("ping", "raw"):
            port = 0
        if self.peer == "itself":
            return (self.net["own6"], port)
        if self.family == "6":
            return (self.net["6"], port)
        mapped = self.family == "mapped" and self.kind not in ("ping", "raw")
        return (("::ffff:" if mapped else "") + self.net["4"], port)

    def loopback_address(self, port):
        if self.family == "6":
            return ("::1", port)
        mapped = self.family == "mapped" and self.kind not in ("ping", "raw")
        return (("::ffff:" if mapped else "") + "127.0.0.1", port)

    def elsewhere(self):
        """Another port of the peer."""
        port = 0 if self.kind in ("ping", "raw") else self.net["port"] + (self.peer_port() == self.net["port"])
        return (self.peer_address()[0], port)

    def loopback_server(self):
        """The port of a TCP server of this process that reads what it gets."""
        listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)

        def read(c):
            try:
                while c.recv(1 << 18):
                    pass
            except OSError:
                pass
            c.close()

        def serve():
            while True:
                threading.Thread(target=read, args=(listener.accept()[0],), daemon=True).start()
        threading.Thread(target=serve, daemon=True).start()
        return listener.getsockname()[1]

    def places(self):
        """Where a socket goes that is used for many: the peer, another port, and its own machine if that is free. It is not for
        datagrams that come from another address than a loopback one, unless they are of UDP over IPv4 and somebody reads them.
        Nor is it for raw sockets, whose packets may be unpacked and led on."""
        if self.peer == "itself":
            return [self.peer_address()]
        places = [self.peer_address(), self.elsewhere()]
        if self.kind not in DATAGRAMS:
            places.append(self.loopback_address(self.loopback_server()))
        elif self.kind == "udp" and self.family != "6" or self.call == "many_peers" and self.kind != "raw":
            places.append(self.loopback_address(0 if self.kind == "ping" else self.loopback_port()))
        return places

    def loopback_port(self):
        """That of a datagram socket of this process."""
        kind = 136 if self.kind == "udplite" else 0
        self.at_loopback = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM, kind)
        self.at_loopback.bind(("::", 0))
        return self.at_loopback.getsockname()[1]

    def open(self):
        family = socket.AF_INET if self.family == "4" else socket.AF_INET6
        if self.kind in ("ping", "raw") and self.family == "mapped":
            family = socket.AF_INET
        s = self.make_socket(family)
        self.set_options(s)
        try:
            self.apply_past(s)
        except OSError:
            self.refused("past")
        if self.peer == "itself":
            s.setsockopt(socket.IPPROTO_IPV6, 78, 1)  # IPV6_FREEBIND
            s.bind((self.net["6"], 0))
        return s

    def make_socket(self, family):
        six = family == socket.AF_INET6
        try:
            if self.kind == "smc":
                return self.smc(six)
            return socket.socket(family, *self.protocol(six))
        except OSError:
            self.refused("kind")
            if self.kind != "smc":
                raise
        return socket.socket(family, socket.SOCK_STREAM)

    def smc(self, six):
        """A socket that would use RDMA, and uses TCP, as there is none. Python gives it addresses of IP."""
        s = socket.socket(43, socket.SOCK_STREAM, int(six))  # AF_SMC
        return socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM, fileno=s.detach())

    def set_options(self, s):
        for name in ("option", "option2"):
            try:
                self.set(s, self.traits[name])
            except (OSError, OverflowError):
                self.refused(name)

    def protocol(self, six):
        return {
            "tcp": (socket.SOCK_STREAM, 0),
            "mptcp": (socket.SOCK_STREAM, 262),
            "udp": (socket.SOCK_DGRAM, 0),
            "udplite": (socket.SOCK_DGRAM, 136),
            "ping": (socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6 if six else socket.IPPROTO_ICMP),
            "raw": (socket.SOCK_RAW, 253),
        }[self.kind]

    def set(self, s, option):
        tcp, sol = socket.IPPROTO_TCP, socket.SOL_SOCKET
        simple = {
            "sndbuf_small": (sol, socket.SO_SNDBUF, 2048),
            "sndbuf_large": (sol, socket.SO_SNDBUF, 1 << 22),
            "tos": (socket.IPPROTO_IP, socket.IP_TOS, 0x88),
            "ecn_capable": (socket.IPPROTO_IP, socket.IP_TOS, 2),
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
        if option in ("tos", "ecn_capable") and s.family == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, simple[option][2])
        if option in simple:
            s.setsockopt(*simple[option])
        elif option == "filter":
            attach_filter(s)
        elif option == "md5_full":
            for peer in range(1 << 16):
                number = struct.pack("!I", 0x0a800000 + peer)
                if s.family == socket.AF_INET:
                    address = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s120x", 0, number)
                else:
                    prefix = bytes(10) + b"\xff\xff" if self.family == "mapped" else b"\xfd\x0b" + bytes(10)
                    address = struct.pack("=H", socket.AF_INET6) + struct.pack("!HI16s104x", 0, 0, prefix + number)
                try:
                    s.setsockopt(tcp, 14, address + struct.pack("BBHI", 0, 0, 80, 0) + bytes(80))
                except OSError as e:
                    if e.errno == errno.ENOMEM:
                        return
                    raise

    # What it was used for before.

    def apply_past(self, s):
        any_ = "" if s.family == socket.AF_INET else "::"
        here = "127.0.0.1" if s.family == socket.AF_INET else "::ffff:127.0.0.1" if self.family == "mapped" else "::1"
        if self.past == "bound":
            s.bind((any_, 0))
        elif self.past == "reconnected":
            s.connect(self.peer_address())
            self.disconnect(s)
        elif self.past == "elsewhere":
            s.connect(self.elsewhere())
            s.send(b"x")
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

    def connect(self, s):
        """Connects it, but where each call says where to."""
        if self.call not in ("sendto", "many_peers"):
            s.connect(self.peer_address())
        self.set_up(s)

    def set_up(self, s):
        """What is done to a connection."""
        try:
            if self.afterwards == "repaired":
                self.repair(s)
            elif self.afterwards == "tls":
                s.setsockopt(socket.IPPROTO_TCP, 31, b"tls")  # TCP_ULP
                key = struct.pack("=HH8s16s4s8s", 0x0303, 51, bytes(8), bytes(16), bytes(4), bytes(8))  # AES-GCM-128
                s.setsockopt(282, 1, key)  # SOL_TLS, TLS_TX
        except OSError:
            self.refused("afterwards")

    def repair(self, s):
        """Queues data as if they had been sent."""
        tcp = socket.IPPROTO_TCP
        s.setsockopt(tcp, 19, 1)  # TCP_REPAIR
        try:
            s.setsockopt(tcp, 20, 2)  # TCP_REPAIR_QUEUE: TCP_SEND_QUEUE
            s.send(bytes(100_000))
        finally:
            s.setsockopt(tcp, 19, 0)

    def send_once(self, s):
        """One call; returns how many bytes it took."""
        sending = None
        if not self.has_sent and self.kind not in DATAGRAMS:  # a large piece may take longer than is watched
            sending = threading.Timer(0.5, self.say_sent)
            sending.daemon = True
            sending.start()
        try:
            n = self.try_to_send(s)
        except OSError as e:
            datagram = self.kind in DATAGRAMS
            if datagram and (e.errno == errno.EMSGSIZE or e.errno == errno.ENOBUFS and "sndbuf_small" in (self.option, self.option2)):
                self.refused("bytes")
                self.bytes = 1200
            elif e.errno in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
                self.refused("call")
                self.call = "send"
            if not datagram:
                raise
            n = 0
        finally:
            if sending is not None:
                sending.cancel()
        if n > 0:
            self.say_sent()
        return n

    def say_sent(self):
        self.has_sent = True
        self.say_once("sent", self.number)

    def splice(self, s, n):
        own = self.own
        if getattr(own, "pipe", None) is None:
            own.pipe = os.pipe()
        try:
            sent = 0
            got = os.splice(self.file(), own.pipe[1], min(n, 65536), offset_src=0)
            while sent < got:
                sent += os.splice(own.pipe[0], s.fileno(), got - sent)
            return got
        except OSError:
            os.close(own.pipe[0])  # with what is left in it
            os.close(own.pipe[1])
            own.pipe = None
            if sent > 0:
                return sent
            raise

    def ring(self, s):
        own = self.own
        if getattr(own, "ring_of", None) is not s:
            own.ring, own.ring_of = None, None
            own.ring, own.ring_of = Ring(s.fileno(), self.call in ("ring_write", "ring_read", "ring_zerocopy")), s
            if self.call == "ring_closed":
                self.close_for_ring(s)
        return own.ring

    def close_for_ring(self, s):
        """From now on only the ring has this socket."""
        if tuple(map(int, platform.release().split("-")[0].split(".")[:2])) < (5, 17):  # a known evasion there
            self.refused("call")
        else:
            os.close(s.detach())

    def by_ring(self, s, n):
        ring = self.ring(s)
        if self.call == "ring_write":
            return ring.write(n)
        if self.call == "ring_zerocopy":
            return ring.zerocopy(n)
        return ring.send(ZEROS_AT, n)

    def at_once(self, s, call, at, n, *flags):
        """Several messages of n bytes at an address in one call, sendmmsg or recvmmsg."""
        vector = ctypes.create_string_buffer(struct.pack("QQ", at, n), 16)
        message = struct.pack("QIxxxxQQQQixxxxIxxxx", 0, 0, ctypes.addressof(vector), 1, 0, 0, 0, 0)
        messages = ctypes.create_string_buffer(message * AT_ONCE, len(message) * AT_ONCE)
        if s.gettimeout():  # the call itself does not wait then
            ready = select.poll()  # which takes high descriptors, too
            ready.register(s.fileno(), select.POLLOUT if call is libc.sendmmsg else select.POLLIN)
            if not ready.poll(1000 * s.gettimeout()):
                raise TimeoutError("not in time")
        done = call(s.fileno(), messages, AT_ONCE, *flags)
        if done < 0:
            raise OSError(ctypes.get_errno(), "several messages")
        return sum(struct.unpack_from("I", messages.raw, len(message) * (i + 1) - 8)[0] for i in range(done))

    def file(self):
        if getattr(self.own, "file", None) is None:
            self.own.file = os.memfd_create("sent")
            os.truncate(self.own.file, self.bytes)
        return self.own.file

    def try_to_send(self, s):
        n = self.bytes
        if self.kind in DATAGRAMS:
            n = max(min(n, 65000), 8)
        data = memoryview(ZEROS)[:n]
        if self.kind == "ping":
            data = struct.pack("!BBHHH", 128 if s.family == socket.AF_INET6 else 8, 0, 0, 1, 1) + bytes(n - 8)
        if self.call == "sendto":
            return s.sendto(data, self.peer_address())
        if self.call == "many_peers":
            if self.all_places is None:
                self.all_places = self.places()
            self.next_place += 1
            return s.sendto(data, self.all_places[self.next_place % len(self.all_places)])
        if self.call == "sendmmsg":
            copy = ctypes.create_string_buffer(data, n) if self.kind == "ping" else None
            return self.at_once(s, libc.sendmmsg, ctypes.addressof(copy) if copy else ZEROS_AT, n, 0)
        if self.call == "msg":
            return s.sendmsg([data[:n // 2], data[n // 2:]])
        if self.call == "more":
            return s.send(data, socket.MSG_MORE)
        if self.call == "urgent":
            return s.send(data, socket.MSG_OOB)
        if self.call == "file":
            return os.sendfile(s.fileno(), self.file(), 0, n)
        if self.call == "splice":
            return self.splice(s, n)
        if self.call.startswith("ring"):
            return self.by_ring(s, n)
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
            n = self.send_once(s)
            now = time.monotonic()
            due = max(due, now - 0.01) + max(n / self.up_to, 1 / self.calls)
            if due > now + 0.001:
                time.sleep(min(due - now, MOST_PAUSE))

    # What becomes of its sockets.

    def make(self):
        if self.life in ("keeps", "shares", "wanders"):
            if self.handle in ("passed", "kept"):
                return self.from_another()
            s = self.open()
            self.connect(s)
            return s
        if self.life == "serves":
            family = socket.AF_INET if self.family == "4" else socket.AF_INET6
            s = self.make_socket(family)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.set_options(s)
            if self.past in ("reconnected", "elsewhere", "loopback"):  # it listens after it has been connected
                try:
                    self.apply_past(s)
                except OSError:
                    self.refused("past")
            self.bind(s, ("" if family == socket.AF_INET else "::", self.net["serve"] + self.number))
            s.listen(64)
            return s
        return None

    @staticmethod
    def bind(s, address):
        """The last program's orphans may have the port for a moment."""
        for left in reversed(range(50)):
            try:
                return s.bind(address)
            except OSError as e:
                if e.errno != errno.EADDRINUSE or not left:
                    raise
            time.sleep(0.1)

    def from_another(self):
        ours, theirs = socket.socketpair()
        if fork() == 0:
            try:
                s = self.open()
                self.connect(s)
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

    def move_descriptor(self, s):
        if s.fileno() < 0:  # only a ring has it
            return s
        if self.handle == "high":
            try:
                high = fcntl.fcntl(s.fileno(), fcntl.F_DUPFD, 1500)
            except OSError:
                self.refused("handle")
                return s
            s.close()
            return socket.socket(fileno=high)
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
            except OSError as e:
                if not self.has_sent:
                    print("sender", self.number, e, file=sys.stderr, flush=True)
            self.socket = None
            time.sleep(0.005)

    def send_until_it_fails(self):
        s = self.socket
        if self.life == "serves":
            s = s or self.make()
            while True:
                c, _ = s.accept()
                self.set_up(c)
                threading.Thread(target=self.flood_ignoring_errors, args=(c,), daemon=True).start()
        if self.life in ("closes", "aborts"):
            self.opens_and_closes()
        if self.life == "ends":
            self.programs_that_end()
        if self.life == "crowd":
            threads = [threading.Thread(target=self.flood_ignoring_errors, args=(None, 1), daemon=True) for _ in range(12)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            return
        if s is None:
            s = self.open()
            self.connect(s)
        s = self.move_descriptor(s)
        if self.life == "wanders":
            self.wander(s)
        if self.life == "shares":
            for _ in range(3):
                threading.Thread(target=self.flood_ignoring_errors, args=(s,), daemon=True).start()
        with s:
            self.flood(s)

    def flood_ignoring_errors(self, s, seconds=None):
        try:
            if s is None:
                s = self.open()
                self.connect(s)
            with s:
                self.flood(s, seconds and time.monotonic() + seconds)
        except OSError:
            pass

    def wander(self, s):
        """One socket, connected to one place after the other."""
        places = self.places()
        if self.kind not in DATAGRAMS:
            s.settimeout(1.5)  # longer than a SYN waits for its turn
        with s:
            while True:
                for place in places:
                    begin = time.monotonic()
                    try:
                        self.flood(s, begin + 0.1)
                    except OSError as e:
                        if not self.has_sent:
                            print("sender", self.number, e, file=sys.stderr, flush=True)
                    time.sleep(max(begin + 0.05 - time.monotonic(), 0))
                    try:
                        if self.kind not in DATAGRAMS:
                            self.disconnect(s)
                        s.connect(place)
                        self.set_up(s)
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
                    self.connect(s)
                    for _ in range(2):
                        self.send_once(s)
                except OSError:
                    pass
            time.sleep(max(begin + 1 / self.opens - time.monotonic(), 0))

    def programs_that_end(self):
        """Each sends a byte by one socket and the rest by another, and ends, after a second at the latest."""
        while not self.said:  # this process learns what is refused, and says it, and whether it has sent
            self.by_two_sockets()
            time.sleep(1 / self.opens)
        while True:
            begin = time.monotonic()
            pid = fork()
            if pid == 0:
                try:
                    self.has_sent = True
                    self.said.add(("sent", self.number))
                    self.by_two_sockets()
                finally:
                    os._exit(0)
            while os.waitpid(pid, os.WNOHANG) == (0, 0):
                if time.monotonic() > begin + 1:
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.001)
            time.sleep(max(begin + 1 / self.opens - time.monotonic(), 0))

    def by_two_sockets(self):
        sockets = [self.open(), self.open()]
        try:
            for s in sockets:
                s.setblocking(False) if self.kind in DATAGRAMS else s.settimeout(1)
                self.connect(s)
                if s is sockets[0] and self.kind not in DATAGRAMS:
                    s.send(b"x")
                else:
                    self.send_once(s)
        except OSError:
            pass

    # Where it runs.

    def let_go(self):
        """Another process has the socket now."""
        if self.socket is not None:
            self.socket.close()

    def accompany(self):
        """Does something else meanwhile that no limit holds for: sends in its own machine or in another one."""
        if self.beside == "loopback":
            def flood():
                with socket.create_connection(("127.0.0.1", self.loopback_server())) as c:
                    while True:
                        c.send(bytes(20_000))
                        time.sleep(0.01)
            threading.Thread(target=flood, daemon=True).start()
        elif self.beside == "namespace" and fork() == 0:
            try:
                if libc.unshare(ISOLATED):
                    self.refused("beside")
                    os._exit(0)
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                    fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 1))  # SIOCSIFFLAGS: IFF_UP
                while True:
                    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                        s.sendto(bytes(20_000), ("127.0.0.1", 9))
                    time.sleep(0.01)
            finally:
                os._exit(0)

    def become(self):
        """Somebody else, or elsewhere; the limit is not on that."""
        try:
            if self.place == "user_namespace" and libc.unshare(0x10000000):
                raise OSError(ctypes.get_errno(), "unshare")
            if self.place == "other_user":
                os.setuid(12345)
            if self.place == "moved":
                with open("/proc/self/mountinfo") as mounts:
                    mount = next(m.split()[4] for m in mounts if " - cgroup2 " in m)
                with open("/proc/self/cgroup") as own:
                    below = mount + next(line[3:].strip() for line in own if line.startswith("0::")) + "/moved"
                os.makedirs(below, exist_ok=True)
                with open(below + "/cgroup.procs", "w") as procs:
                    procs.write(str(os.getpid()))
        except OSError:
            self.refused("place")

    def run(self, make, made, go):
        """In its own thread or process: those that have their sockets before the others begin."""
        self.become()
        make.wait()
        try:
            self.socket = self.make()
            if self.call == "ring_closed" and self.life == "keeps" and self.place not in ("late", "orphan", "executed"):
                self.ring(self.socket)
        except OSError as e:
            print("sender", self.number, e, file=sys.stderr, flush=True)
        if self.place == "network_namespace" and libc.unshare(ISOLATED):  # its socket stays where it was made
            self.refused("place")
        os.write(made, b"x")
        go.wait()
        self.accompany()
        if self.place in ("late", "orphan"):
            if fork() != 0:
                self.let_go()
                return
            if self.place == "orphan" and fork() != 0:
                os._exit(0)
            self.send()
        if self.place == "executed":
            fd = -1
            if self.socket is not None:
                fd = self.socket.fileno()
                os.set_inheritable(fd, True)
            os.set_inheritable(COUNTS, True)
            args = json.dumps({"traits": self.traits, "net": self.net, "number": self.number, "fd": fd, "counts": COUNTS})
            subprocess.Popen([sys.executable, sys.argv[0], "--executed", args], close_fds=False)
            self.let_go()
            return
        self.send()


# A gigabyte that takes no memory, as nobody writes to it.
ZEROS = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
ZEROS_AT = ctypes.addressof(ctypes.c_char.from_buffer(ZEROS))
# What was received is counted here.
COUNTS = json.loads(sys.argv[2])["counts"] if sys.argv[1] == "--executed" else os.memfd_create("counts")
os.truncate(COUNTS, 1 << 17)


def main(Kind):
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    if sys.argv[1] == "--executed":
        x = json.loads(sys.argv[2])
        s = Kind(x["traits"], x["net"], x["number"])
        if x["fd"] >= 0:
            s.socket = socket.socket(fileno=x["fd"])
        s.send()
    program, net = json.loads(sys.argv[1]), json.loads(sys.argv[2])
    make, go = Phase(), Phase()
    heard, made = os.pipe()
    threads, all_ = [], [Kind(t, net, i) for i, t in enumerate(program["senders"])]
    for s in all_:
        if s.place not in ("child", "user_namespace", "network_namespace", "other_user", "moved"):
            threads.append(s)
        elif fork() == 0:
            try:
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
    for _ in sys.stdin:
        Kind.answer()
    while True:
        signal.pause()

