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
		{name: "spliced to a high descriptor, which nobody had when the limit came", least: 0.5, text: handed + `
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
