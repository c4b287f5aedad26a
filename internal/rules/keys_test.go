package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/limit"
)

// exampleRule returns a rule that has a key with its example, and what the rule needs beside it.
func exampleRule(key Key) string {
	lines := []string{"[[rule]]", key.Name + " = " + key.Example}
	with := func(line string) {
		if name, _, _ := strings.Cut(line, " "); name != key.Name {
			lines = append(lines, line)
		}
	}
	if key.Name == "adapt" {
		with(`to = "192.0.2.0/24"`)
		return strings.Join(lines, "\n")
	}
	if key.Name != "to" && key.Name != "port" && key.Name != "protocol" {
		with(`program = "x"`)
	}
	with(`up = "1MB/s"`)
	return strings.Join(lines, "\n")
}

// The example of each key is valid, and a user's own file may have the keys that the table says.
func TestKeys(t *testing.T) {
	for _, key := range Keys() {
		text := exampleRule(key)
		_, err := Parse("netnice.toml", []byte(text), Context{LookupUser: func(string) (uint32, error) { return 1, nil }})
		require.NoError(t, err, text)
		_, err = Parse("netnice.toml", []byte(text), Context{OfUser: true})
		require.Equal(t, key.IsAdministrators, err != nil, "%s: %v", text, err)
		require.NotEmpty(t, key.Value)
		require.True(t, strings.HasSuffix(key.Means, "."), key.Name)
	}
}

// A value of the wrong kind is refused for each key.
func TestKeysHaveKinds(t *testing.T) {
	for _, key := range Keys() {
		text := fmt.Sprintf("[[rule]]\nprogram = 'x'\nup = '1MB/s'\n%s = 12:30:00", key.Name)
		if key.Name == "program" || key.Name == "up" {
			text = fmt.Sprintf("[[rule]]\nunit = 'x'\ndown = '1MB/s'\n%s = 12:30:00", key.Name)
		}
		_, err := Parse("netnice.toml", []byte(text), Context{LookupUser: func(string) (uint32, error) { return 1, nil }})
		require.ErrorContains(t, err, key.Name, text)
	}
}

// Every rate and the weight of a limit is a key of rules, too.
func TestKeysHaveRates(t *testing.T) {
	for _, r := range limit.Rates {
		require.Contains(t, keysOfRule(), strings.ReplaceAll(r.Name, "-", "_"))
	}
	require.Contains(t, keysOfRule(), "weight")
}
