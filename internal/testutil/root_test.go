package testutil

import "testing"

func TestRequireRoot(t *testing.T) {
	if Privileged() == nil {
		f := &fakeTB{}
		RequireRoot(f)
		if f.said != "" {
			t.Errorf("root, and yet %s", f.said)
		}
		return
	}
	for value, want := range map[string]string{"": "skip", "0": "skip", "1": "fatal"} {
		t.Setenv(MustRunPrivileged, value)
		f := &fakeTB{}
		RequireRoot(f)
		if f.said != want {
			t.Errorf("%s=%q: %q, want %q", MustRunPrivileged, value, f.said, want)
		}
	}
}

// fakeTB records the calls of its methods.
type fakeTB struct {
	testing.TB
	said string
}

func (f *fakeTB) Helper()               {}
func (f *fakeTB) Skipf(string, ...any)  { f.said = "skip" }
func (f *fakeTB) Fatalf(string, ...any) { f.said = "fatal" }
