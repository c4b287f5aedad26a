package shell

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// wordShells returns the shells of this machine into which people paste a word; sh is always among them.
func wordShells() []string {
	list := []string{"sh"}
	for _, name := range []string{"bash", "zsh", "fish"} {
		if _, err := exec.LookPath(name); err == nil {
			list = append(list, name)
		}
	}
	return list
}

func TestWord(t *testing.T) {
	env := append(os.Environ(), "HOME="+t.TempDir()) // without the settings of the user who runs the test
	for text, want := range map[string]string{
		"user:bob": "user:bob", "to:192.0.2.0/24:443@user:bob": "to:192.0.2.0/24:443@user:bob", "4711=300": "4711=300",
		"":                   "''",
		"any,!10.0.0.0/8":    "'any,!10.0.0.0/8'",
		"[2001:db8::/32]:53": "'[2001:db8::/32]:53'",
		"web-*":              "'web-*'",
		"=ls":                "'=ls'",
		"~bob":               "'~bob'",
		"/a b":               "'/a b'",
		`it's`:               `'it'\''s'`,
		`\x20$(id)`:          `''\\'x20$(id)'`,
		`a\\\'b\`:            `'a'\\''\\''\\''\''b'\\''`,
	} {
		require.Equal(t, want, Word(text))
		for _, name := range wordShells() {
			cmd := exec.CommandContext(t.Context(), name, "-c", "printf %s "+Word(text))
			cmd.Env = env
			out, err := cmd.Output()
			require.NoError(t, err, "%s: %s", name, Word(text))
			require.Equal(t, text, string(out), name)
		}
	}
}
