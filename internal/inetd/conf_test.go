package inetd

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/account"
)

func TestParse(t *testing.T) {
	services, err := Parse(strings.NewReader(`
# the third configuration of the paper
ftp     stream  tcp     nowait          root            /usr/sbin/ftpd     ftpd -l
login   stream  tcp     nowait.40/10    root            /usr/sbin/rlogind  rlogind  @32Kbyte/sec
telnet  stream  tcp6    nowait/5        nobody:root     /usr/sbin/telnetd  telnetd @32Kbyte/sec # slowly
tftp    dgram   udp46   wait            nobody.root     /usr/sbin/tftpd
127.0.0.1:8021 stream tcp4 wait root /bin/ftpd ftpd
[::1]:7007 stream tcp nowait/0/20/2 root internal echo
chargen dgram   udp     wait            root            internal
`), account.Machine())
	require.NoError(t, err)
	require.Equal(t, []Service{
		{Line: 3, Name: "ftp", Network: "tcp", Address: ":21", User: "root", Server: "/usr/sbin/ftpd", Args: []string{"ftpd", "-l"}},
		{Line: 4, Name: "login", Network: "tcp", Address: ":513", PerMinute: 40, Children: 10, User: "root", Server: "/usr/sbin/rlogind", Args: []string{"rlogind"}, RateBytesPerSec: 32 << 10},
		{Line: 5, Name: "telnet", Network: "tcp6", Address: ":23", Children: 5, User: "nobody", Group: "root", Server: "/usr/sbin/telnetd", Args: []string{"telnetd"}, RateBytesPerSec: 32 << 10},
		{Line: 6, Name: "tftp", Network: "udp", Address: ":69", Wait: true, User: "nobody", Group: "root", Server: "/usr/sbin/tftpd", Args: []string{"tftpd"}},
		{Line: 7, Name: "127.0.0.1:8021", Network: "tcp4", Address: "127.0.0.1:8021", Wait: true, User: "root", Server: "/bin/ftpd", Args: []string{"ftpd"}},
		{Line: 8, Name: "[::1]:7007", Network: "tcp", Address: "[::1]:7007", ClientPerMinute: 20, ClientChildren: 2, User: "root", Server: Internal, Args: []string{"echo"}},
		{Line: 9, Name: "chargen", Network: "udp", Address: ":19", Wait: true, User: "root", Server: Internal, Args: []string{"chargen"}},
	}, services)
}

// fakeAccounts are the accounts of a directory service. It has bob and bob.smith, and does not answer about slow.
type fakeAccounts struct{}

func (fakeAccounts) User(_ context.Context, name string) (account.User, error) {
	switch name {
	case "bob", "bob.smith":
		return account.User{Name: name, UID: 70001, GID: 70000}, nil
	case "slow":
		return account.User{}, account.ErrUnanswered
	}
	return account.User{}, account.ErrUnknown
}

func (fakeAccounts) Group(_ context.Context, name string) (account.Group, error) {
	if name != "staff" {
		return account.Group{}, account.ErrUnknown
	}
	return account.Group{Name: name, GID: 70000}, nil
}

// Parse accepts users of a directory. Its error for a directory that does not answer differs from that for an unknown
// user.
func TestParseUsersOfADirectory(t *testing.T) {
	for text, want := range map[string]Service{
		"bob":             {User: "bob"},
		"bob:staff":       {User: "bob", Group: "staff"},
		"bob.staff":       {User: "bob", Group: "staff"},
		"bob.smith":       {User: "bob.smith"},
		"bob.smith:staff": {User: "bob.smith", Group: "staff"},
	} {
		list, err := Parse(strings.NewReader("ftp stream tcp nowait "+text+" /x"), fakeAccounts{})
		require.NoError(t, err, text)
		require.Equal(t, [2]string{want.User, want.Group}, [2]string{list[0].User, list[0].Group}, text)
	}
	for text, says := range map[string]string{
		"eve":     `there is no user "eve"`,
		"bob:eve": `there is no group "eve"`,
		"slow":    `the user "slow" cannot be looked up: ` + account.ErrUnanswered.Error(),
	} {
		_, err := Parse(strings.NewReader("ftp stream tcp nowait "+text+" /x"), fakeAccounts{})
		require.ErrorContains(t, err, says, text)
	}
}

// An option -1 that a program may have is its own.
func TestParseKeepsOptions(t *testing.T) {
	for _, words := range []string{"/usr/sbin/ftpd ftpd -l", "/usr/sbin/pure-ftpd pure-ftpd -1", "/usr/sbin/ftpd", "/bin/ls ls -1"} {
		list, err := Parse(strings.NewReader("ftp stream tcp nowait root "+words), account.Machine())
		require.NoError(t, err, words)
		if given := strings.Fields(words)[1:]; len(given) > 0 {
			require.Equal(t, given, list[0].Args)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for line, says := range map[string]string{
		"ftp stream tcp nowait root":                                  "5 words",
		"ftp raw tcp nowait root /x":                                  "type of socket",
		"ftp stream udp nowait root /x":                               `no protocol "udp"`,
		"no-such-service stream tcp nowait root /x":                   "no service is called",
		"0 stream tcp nowait root /x":                                 "no service is called",
		"a.b:ftp stream tcp nowait root /x":                           "no address",
		"ftp stream tcp sometimes root /x":                            "neither wait nor nowait",
		"ftp stream tcp nowait.0 root /x":                             "no number",
		"ftp stream tcp nowait/0 root /x":                             "no number",
		"ftp stream tcp nowait/1/-1 root /x":                          "no number",
		"ftp stream tcp nowait/1/2/3/4 root /x":                       "too many numbers",
		"ftp stream tcp wait/1/2/3 root /x":                           "does not know its clients",
		"tftp dgram udp nowait/1/0/3 root /x":                         "does not know its clients",
		"ftp stream tcp nowait nobody-is-called-so /x":                "no user",
		"ftp stream tcp nowait root:nobody-is-called-so /x":           "no group",
		"ftp stream tcp nowait root ftpd":                             "no path",
		"ftp stream tcp nowait root /ftpd ftpd @128":                  "has no unit",
		"ftp stream tcp nowait root /usr/libexec/ftpd ftpd -1":        "ftpd has no option -1",
		"ftp stream tcp nowait root /usr/sbin/in.ftpd ftpd -l -1":     "in.ftpd has no option -1",
		"ftp stream tcp nowait root internal":                         "not built in",
		"echo stream tcp nowait root internal @1MB/s":                 "no rate of its own",
		"ftp stream tcp nowait root /a\n21 stream tcp nowait root /b": "line 2: 21 is served already",
	} {
		_, err := Parse(strings.NewReader(line), account.Machine())
		require.ErrorContains(t, err, says, line)
	}
	_, err := Parse(strings.NewReader("a\nb"), account.Machine())
	var all Problems
	require.ErrorAs(t, err, &all)
	require.Len(t, all, 2)
	require.Equal(t, []int{1, 2}, []int{all[0].Line, all[1].Line})
}

func FuzzParse(f *testing.F) {
	f.Add("ftp stream tcp nowait.40/10 root:root /usr/sbin/ftpd ftpd -l @32Kbyte/sec # x")
	f.Add("[::1]:7 dgram udp6 wait root internal echo")
	accounts := account.New(account.Options{Getent: []string{"/nonexistent"}}) // no process for each name
	f.Fuzz(func(t *testing.T, text string) {
		services, err := Parse(strings.NewReader(text), accounts)
		if err != nil {
			return
		}
		for _, s := range services {
			if _, _, err := net.SplitHostPort(s.Address); err != nil || s.Server == "" || len(s.Args) == 0 || s.User == "" {
				t.Fatalf("%q gives %+v", text, s)
			}
		}
	})
}

func TestAnswer(t *testing.T) {
	from := &net.UDPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 5000}
	require.Equal(t, "hello", string(answer("echo", []byte("hello"), from, 0)))
	require.Nil(t, answer("discard", []byte("hello"), from, 0))
	require.Len(t, answer("chargen", nil, from, 94), chargenLine+2)
	require.NotEqual(t, answer("chargen", nil, from, 0), answer("chargen", nil, from, 1))
	_, err := time.Parse(time.ANSIC+"\r\n", string(answer("daytime", nil, from, 0)))
	require.NoError(t, err)
	// two services that answer each other would never end
	for _, port := range []int{7, 13, 19} {
		require.Nil(t, answer("echo", []byte("hello"), &net.UDPAddr{Port: port}, 0))
	}
}
