package pacing

import (
	"strings"
	"testing"
)

func TestCommonCgroup(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{"/", "/", "/"},
		{"/a", "/a", "/a"},
		{"/a", "/", "/"},
		{"/a/b", "/a", "/a"},
		{"/a/b", "/a/c", "/a"},
		{"/a/b/c", "/a/b/d", "/a/b"},
		{"/a/b", "/ab/b", "/"},
		{"/a", "/ab", "/"},
		{"/a/bc", "/a/b", "/a"},
		{"/system.slice/x.service", "/user.slice/user-1.slice", "/"},
	} {
		if got := commonCgroup(c.a, c.b); got != c.want {
			t.Errorf("common cgroup of %s and %s: %s, want %s", c.a, c.b, got, c.want)
		}
		if got := commonCgroup(c.b, c.a); got != c.want {
			t.Errorf("common cgroup of %s and %s: %s, want %s", c.b, c.a, got, c.want)
		}
	}
}

func TestWidened(t *testing.T) {
	deep := func(n int) string { return "/a" + strings.Repeat("/x", n) }
	for _, c := range []struct {
		from  string
		paths []string
		want  string
	}{
		{"", nil, ""},
		{"/a", nil, "/a"},
		{"", []string{"/a/b"}, "/a/b"},
		{"", []string{"/a/b", "/a/c", "/a/b/d"}, "/a"},
		{"/a/b", []string{"/a/b"}, "/a/b"},
		{"/a/b", []string{"/a/b/c"}, "/a/b"},
		{"/a/b", []string{"/a/c"}, "/a"},
		{"/a/b", []string{"/"}, "/"},
		{"/a/b", []string{"/a/b/c", "/d"}, "/"},
		{"", []string{deep(40)}, deep(40)},
		{"/a", []string{deep(11)}, "/a"},
		{"/a", []string{deep(12)}, "/a"},
		{"", []string{deep(12), "/a"}, "/a"},
	} {
		if got := widened(c.from, c.paths...); got != c.want {
			t.Errorf("%q widened by %q: %q, want %q", c.from, c.paths, got, c.want)
		}
	}
}
