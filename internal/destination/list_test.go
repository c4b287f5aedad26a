package destination

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/enforce"
)

func TestReadList(t *testing.T) {
	list, mistakes, err := ReadList(strings.NewReader("# ours\n10.0.0.0/8 # inside\n\n2001:db8::/32\r\n10.0.0.0/8\n192.0.2.7\n"))
	require.NoError(t, err)
	require.Empty(t, mistakes)
	require.Equal(t, "[10.0.0.0/8 192.0.2.7/32 2001:db8::/32]", fmt.Sprint(list))

	list, mistakes, err = ReadList(strings.NewReader("10.0.0.0/8\n10.0.0.1/8\nexample.com\n"))
	require.NoError(t, err)
	require.Empty(t, list)
	require.Equal(t, []Mistake{
		{2, `"10.0.0.1/8" has more bits than its length of 8: 10.0.0.0/8?`},
		{3, `"example.com" is neither an address nor a prefix`},
	}, mistakes)
}

// Each line of any file is a mistake, or a prefix in its canonical form, which is read back unchanged.
func FuzzReadList(f *testing.F) {
	f.Add("# ours\n10.0.0.0/8 # inside\n\n2001:db8::/32\r\n10.0.0.0/8\n192.0.2.7\n")
	f.Add("::ffff:10.0.0.0/104\n::ffff:0:0/96\n0.0.0.0/0\n::/0\nfe80::1%eth0\n010.0.0.1\n10.0.0.1/8\n/8\n")
	f.Add(strings.Repeat("x", 70_000))
	f.Fuzz(func(t *testing.T, text string) {
		list, mistakes, err := ReadList(strings.NewReader(text))
		if err != nil || len(mistakes) > 0 {
			require.Empty(t, list)
			require.LessOrEqual(t, len(mistakes), mostMistakes)
			for _, m := range mistakes {
				require.True(t, m.Line > 0 && m.Line <= strings.Count(text, "\n")+1 && m.Text != "", "%+v", m)
			}
			return
		}
		var again strings.Builder
		for i, p := range list {
			require.Equal(t, p.Masked(), p)
			require.False(t, p.Addr().Is4In6() && p.Bits() >= 96, p)
			require.Empty(t, p.Addr().Zone())
			require.True(t, i == 0 || list[i-1].Compare(p) < 0)
			fmt.Fprintln(&again, p)
		}
		same, _, err := ReadList(strings.NewReader(again.String()))
		require.NoError(t, err)
		require.Equal(t, list, same)
	})
}

func TestParseList(t *testing.T) {
	s, _, err := Parse("file:/etc/netnice/lan.txt:443/tcp@user:bob")
	require.NoError(t, err)
	require.Equal(t, "/etc/netnice/lan.txt", s.List)
	require.Equal(t, "file:/etc/netnice/lan.txt:443/tcp", s.String())
	for text, want := range map[string]string{
		"file:lan.txt":    "no absolute path",
		"!file:/lan.txt":  "cannot be left out",
		"file:/a,file:/b": "one file",
	} {
		_, _, err := Parse(text)
		require.ErrorContains(t, err, want)
	}
	require.Error(t, ListPath("/a,b"))
	require.Error(t, ListPath("/etc/tcp"))
	require.NoError(t, ListPath("/etc/lan.txt"))
}

// A hundred thousand prefixes are compiled in a time that a command may take, beside any
// other limits.
func TestCompileMany(t *testing.T) {
	l := Limit{Selector: Selector{Prefixes: everywhere()}, Rule: 1}
	for i := range 100_000 {
		l.Listed = append(l.Listed, netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(i >> 16), byte(i >> 8), byte(i)}), 32))
	}
	other := Limit{Selector: Selector{Prefixes: []netip.Prefix{netip.MustParsePrefix("100.0.0.0/8")}}, Rule: 2}
	began := time.Now()
	list, over := Compile(7, []Limit{l, other}, nil)
	t.Logf("%v for %d prefixes", time.Since(began), len(list))
	require.Less(t, time.Since(began), 20*time.Second)
	require.Empty(t, over)
	require.Len(t, list, 100_003)
	at := list[50_000]
	require.Equal(t, []enforce.DestinationRule{{Rule: 1, PortTo: lastPort}, {Rule: 2, PortTo: lastPort}}, at.Rules)
}
