package e2e

import (
	"slices"
	"testing"

	"github.com/netnice/netnice/api"
)

// Members of the administrators' group may do by the socket option the same as by the API, whichever of their groups
// it is. No other user may.
func TestSocketOptionAdministrators(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	group := spare + 4321
	s := stageInOwnCgroup(t)
	s.admins = itoa(group)
	s.daemon()
	owner := s.python(options{uid: spare + 31}, `wait()`)
	x := s.python(options{}, `
NETNICE_LIMIT, PRIO_NET, UP, ASK = 7005, 3, 0, (1 << 64) - 1
LIMIT = struct.Struct("IIIIQ")
who, group = int(sys.argv[1]), int(sys.argv[2])

def put(s, value):
    s.setsockopt(socket.IPPROTO_TCP, NETNICE_LIMIT, LIMIT.pack(PRIO_NET, who, UP, 0, value))

def limit(value):
    s = socket.socket()
    put(s, value)
    while True:
        *_, error, holds = LIMIT.unpack(s.getsockopt(socket.IPPROTO_TCP, NETNICE_LIMIT, LIMIT.size))
        if error != errno.EINPROGRESS:
            return errno.errorcode.get(error, holds)
        time.sleep(0.001)

def burst(_):
    s = socket.socket()
    try:
        for _ in range(150):
            put(s, ASK)
    except OSError as e:
        # another netnice's hook, of tests beside this one, is asked then, too, and may
        # have lost its daemon
        if e.errno not in (errno.EAGAIN, errno.EOPNOTSUPP):
            raise
        return "refused"
    return "ok"

def as_user(name, gid, groups, what, value=0):
    if os.fork() == 0:
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(int(sys.argv[3]), int(sys.argv[3]), int(sys.argv[3]))
        say(name, what(value))
        os._exit(0)
    os.wait()

many = list(range(group - 150, group)) + list(range(group + 1, group + 150))
as_user("none", group - 1, [], limit, 1000)
as_user("many", group + 1, many, limit, 1000)
as_user("primary", group, [], limit, 2000)
as_user("alone", group + 1, [group], limit, 3000)
as_user("first", group + 1, [group] + list(range(group + 2, group + 60)), limit, 4000)
as_user("last", group + 1, list(range(group - 60, group)) + [group], limit, 5000)
as_user("among", group + 1, many + [group], limit, 6000)
as_user("floods", group + 1, many, burst)
as_user("asks", group + 1, [group], burst)
`, owner.pid(), itoa(group), itoa(spare+32))
	for _, c := range [][2]string{
		{"none", "EPERM"},
		{"many", "EPERM"},
		{"primary", "2000"},
		{"alone", "3000"},
		{"first", "4000"},
		{"last", "5000"},
		{"among", "6000"},
		{"floods", "refused"},
		{"asks", "ok"},
	} {
		if got := x.read(c[0]); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
	if !slices.ContainsFunc(s.list().Nodes, func(n api.Node) bool {
		return n.Subject.String() == "pid:"+owner.pid() && len(n.Limits) == 1 && n.Limits[0].Owner == "admin" && n.Limits[0].BytesPerSec == 6000
	}) {
		t.Errorf("limits are %+v, want one of the administrator's", s.list().Nodes)
	}
}
