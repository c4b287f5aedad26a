"""flow.py USER SECONDS: sends over loopback as a user ("-" = who calls), and prints
what came, in bytes, every 50 ms."""
import os, pwd, socket, sys, time

user, seconds = sys.argv[1], float(sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
child = os.fork()
if not child:
    if user != "-":
        who = pwd.getpwnam(user)
        os.setgid(who.pw_gid)
        os.setuid(who.pw_uid)
    s = socket.create_connection(listener.getsockname())
    data = bytes(65536)
    try:
        while True:
            s.sendall(data)
    except OSError:
        os._exit(0)
conn, _ = listener.accept()
conn.settimeout(0.05)
begin = time.monotonic()
total, at = 0, 0.0
while at < seconds:
    try:
        total += len(conn.recv(1 << 20))
    except TimeoutError:
        pass
    at = time.monotonic() - begin
    print(f"{at:.3f} {total}")
conn.close()
os.kill(child, 9)
os.wait()
