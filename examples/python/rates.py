#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sets rates and reads them back: of sockets, of this process, of this user.

    ./rates.py tcp4:send:8:1000000 accepted6:receive:8:500000 process:total:8:2000000

A socket, what it is to do, the size of the value in bytes, and the value. See
../README.md.
"""
import errno
import socket
import struct
import sys
import time

# of include/netnice.h
TCP_SNDRATE, TCP_RCVRATE, NETNICE_LIMIT = 7001, 7002, 7005
PRIO_NET, PRIO_NET_USER = 3, 4
SEND, RECEIVE, TOTAL = 0, 1, 2
ASK = 2**64 - 1
LIMIT = struct.Struct("=IIIIQ")


def listener(family):
    s = socket.socket(family)
    s.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
    s.listen()
    return s


def rate_of_socket(kind, option, size, value):
    family = socket.AF_INET6 if kind.endswith("6") else socket.AF_INET
    level = socket.IPPROTO_TCP
    if kind.startswith("udp"):
        s, level = socket.socket(family, socket.SOCK_DGRAM), socket.IPPROTO_UDP
    elif kind.startswith("open"):
        other = listener(family)
        s = socket.create_connection(other.getsockname()[:2])
    elif kind.startswith("accepted"):
        s = listener(family)
    elif kind == "unix":
        s = socket.socket(socket.AF_UNIX)
    else:
        s = socket.socket(family)

    s.setsockopt(level, option, value.to_bytes(16, sys.byteorder, signed=True)[:size])

    if kind.startswith("accepted"):
        with socket.create_connection(s.getsockname()[:2]):
            s = s.accept()[0]
    return struct.unpack("=Q", s.getsockopt(level, option, 8))[0]


def limit(which, who, direction, value):
    """Sets or asks for a limit of a process or a user; returns what holds."""
    with socket.socket() as s:
        s.setsockopt(socket.IPPROTO_TCP, NETNICE_LIMIT, LIMIT.pack(which, who, direction, 0, value))
        for _ in range(5000):
            *_, error, holds = LIMIT.unpack(s.getsockopt(socket.IPPROTO_TCP, NETNICE_LIMIT, LIMIT.size))
            if error != errno.EINPROGRESS:
                break
            time.sleep(0.001)
    if error:
        raise OSError(error, "netnice")
    return holds


def run(case):
    kind, what, size, value = case.split(":")
    direction = {"send": SEND, "receive": RECEIVE, "total": TOTAL}[what]
    value = int(value)
    if kind in ("process", "user", "init"):
        which = PRIO_NET_USER if kind == "user" else PRIO_NET
        who = 1 if kind == "init" else 0  # 0: mine
        limit(which, who, direction, value % 2**63 if value >= 0 else 2**63)
        holds = limit(which, who, direction, ASK)
        limit(which, who, direction, 0)
        return holds
    return rate_of_socket(kind, TCP_SNDRATE if direction == SEND else TCP_RCVRATE, int(size), value)


for case in sys.argv[1:]:
    try:
        print(case, run(case))
    except OSError as e:
        print(case, errno.errorcode[e.errno].replace("ENOTSUP", "EOPNOTSUPP"))
