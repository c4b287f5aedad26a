package shell

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWord(t *testing.T) {
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
		`\x20$(id)`:          `'\x20$(id)'`,
	} {
		require.Equal(t, want, Word(text))
		out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", "printf %s "+Word(text)).Output()
		require.NoError(t, err)
		require.Equal(t, text, string(out))
	}
}
