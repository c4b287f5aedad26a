# Carries out a Program that receives; it stands behind sender.py. It says "sent N" as the Nth receiver's first bytes
# come, and "received BYTES" of payload, all of it until now, for each line that it reads after "go".
# Programs that receive have no peer with holes: what is behind one comes at once as it is filled, and is no excess.
FLOODS = ["floods", "bursts", "small", "converses", "stalls", "resets", "pieces", "holes", "reorders", "duplicates"]  # their ports are behind those of sender.py
ASK_S = 0.1  # datagrams come for twice as long after a socket has asked for them
SLOTS = 1 << 14


class Counts:
    """How much each thread has received, in memory that all processes of the program share. Threads whose numbers
    have the same remainder share a slot, and never run at once."""
    memory = None

    @classmethod
    def open(cls):
        cls.memory = mmap.mmap(COUNTS, 8 * SLOTS)

    @classmethod
    def add(cls, n):
        at = 8 * (threading.get_native_id() % SLOTS)
        cls.memory[at:at + 8] = struct.pack("Q", struct.unpack("Q", cls.memory[at:at + 8])[0] + n)

    @classmethod
    def all(cls):
        return sum(struct.unpack("%dQ" % SLOTS, cls.memory[:]))


class Receiver(Sender):
    @staticmethod
    def answer():
        say("received", Counts.all())

    def __init__(self, traits, net, number):
        super().__init__(traits, net, number)
        if Counts.memory is None:
            Counts.open()

    def peer_port(self):
        return self.net["port"] + len(BEHAVIOURS) + FLOODS.index(self.peer)

    def elsewhere(self):
        """Another port of the peer, which sends as well."""
        port = self.net["port"] + len(BEHAVIOURS) + (self.peer == "floods")
        return (self.peer_address()[0], port)

    def places(self):
        """No limit holds for what it would receive of its own machine."""
        return [self.peer_address(), self.elsewhere()]

    def set(self, s, option):
        sol, tcp = socket.SOL_SOCKET, socket.IPPROTO_TCP
        simple = {
            "rcvbuf_small": (sol, socket.SO_RCVBUF, 2304),
            "rcvbuf_large": (sol, socket.SO_RCVBUF, 1 << 22),
            "busy_poll": (sol, 46, 50),
            "window_clamp": (tcp, socket.TCP_WINDOW_CLAMP, 4096),
            "rcvlowat": (sol, socket.SO_RCVLOWAT, 30000),
            "defer_accept": (tcp, socket.TCP_DEFER_ACCEPT, 5),
            "coalesced": (17, 104, 1),  # UDP_GRO
        }
        if option in simple:
            return s.setsockopt(*simple[option])
        super().set(s, option)

    # How it receives.

    def connect(self, s):
        """Connects it, but where datagrams come from whoever was asked."""
        if self.call != "unconnected":
            s.connect(self.peer_address())
        if "fastopen" in (self.option, self.option2):  # it connects as it sends
            s.send(b"x")

    def send_once(self, s):
        if self.kind in DATAGRAMS:
            self.ask(s)
        try:
            n = self.receive(s)
        except BlockingIOError:  # of those that are given up soon
            n = self.receive_within(s, ASK_S / 2)
        except TimeoutError:
            n = 0
        except OSError as e:
            if e.errno in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
                self.refused("call")
                self.call = "recv"
            raise
        if n:
            Counts.add(n)
            self.say_sent()
        return n

    def receive_within(self, s, seconds):
        try:
            return self.receive(s) if select.select([s], [], [], seconds)[0] else 0
        except BlockingIOError:
            return 0

    def ask(self, s):
        now = time.monotonic()
        asked = self.own.__dict__.setdefault("asked", {})
        if now < asked.get(s, 0) + ASK_S:
            return
        asked.clear()
        asked[s] = now
        if s.gettimeout() is None:
            s.settimeout(ASK_S / 2)
        if self.call == "told":  # another socket asks for it, which has sent nothing
            if getattr(self.own, "teller", None) is None:
                self.own.teller = socket.socket(s.family, *self.protocol(s.family == socket.AF_INET6))
            self.own.teller.sendto(b"%d" % s.getsockname()[1], s.getpeername())
        elif self.call == "unconnected":
            s.sendto(b"x", self.peer_address())
        else:
            s.send(b"x")

    def receive(self, s):
        n = self.bytes if self.kind not in DATAGRAMS else 65536
        own = self.own
        if getattr(own, "buffer", None) is None:
            own.buffer = bytearray(1 << 20)
        room = memoryview(own.buffer)[:n]
        if self.call == "msg":
            return s.recvmsg_into([room[:n // 2], room[n // 2:]])[0]
        if self.call == "unconnected":
            return s.recvfrom_into(room)[0]
        if self.call == "discard":
            return self.discard(s, n)
        if self.call == "splice":
            return self.splice_here(s, n)
        if self.call == "recvmmsg":
            return self.at_once(s, libc.recvmmsg, ctypes.addressof(ctypes.c_char.from_buffer(own.buffer)), n, 0x10000, None)  # MSG_WAITFORONE
        if self.call.startswith("ring"):
            return self.by_ring(s, n)
        return s.recv_into(room)

    def discard(self, s, n):
        got = libc.recv(s.fileno(), None, n, socket.MSG_TRUNC)
        if got < 0:
            raise OSError(ctypes.get_errno(), "recv")
        return got

    def splice_here(self, s, n):
        own = self.own
        if getattr(own, "pipe", None) is None:
            own.pipe, own.sink = os.pipe(), os.open("/dev/null", os.O_WRONLY)
        got = left = os.splice(s.fileno(), own.pipe[1], min(n, 65536))
        while left:
            left -= os.splice(own.pipe[0], own.sink, left)
        return got

    def by_ring(self, s, n):
        if self.call == "ring_read":
            return self.ring(s).read(n)
        return self.ring(s).receive(ctypes.addressof(ctypes.c_char.from_buffer(self.own.buffer)), n)

    def flood(self, s, until=None):
        while until is None or time.monotonic() < until:
            if self.peer == "converses":
                s.send(b"x")
            if not self.send_once(s) and self.kind not in DATAGRAMS:
                raise OSError(errno.EPIPE, "the peer has closed")
