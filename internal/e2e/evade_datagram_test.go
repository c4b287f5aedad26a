package e2e

import "testing"

// Datagrams are charged to who sends them, whatever else sends by the socket and by whatever call.
func TestEvadeByDatagrams(t *testing.T) {
	evade(t, nil, []escape{
		{name: "to this machine by the same socket", least: 0.5, text: `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here.bind(("127.0.0.1", 0))
ready()
def sends(data, to):
    while True:
        try:
            s.sendto(data, to)
        except OSError:
            pass
at = here.getsockname()
for data, to in (bytes(1400), (there[0], 9)), (bytes(60000), at), (b"x", at):
    if os.fork() == 0:
        sends(data, to)
signal.pause()
`},
		{name: "spliced to a high descriptor, which nobody had when the limit came", least: 0.5, text: `
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.connect((there[0], 9))
    socket.send_fds(a, [b"x"], [s.fileno()])
ready()
_, (fd,), _, _ = socket.recv_fds(b, 1, 1)
os.dup2(fd, 2000)
os.close(fd)
r, w = os.pipe()
data = bytes(1400)
while True:
    os.write(w, data)
    try:
        os.splice(r, 2000, len(data))
    except OSError:
        os.read(r, len(data))
`},
	})
}
