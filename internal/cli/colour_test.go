package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
)

// terminal is a machine with a terminal of a given width.
type terminal struct {
	Machine
	width int
}

func (t terminal) Terminal(io.Writer) (width, height int) { return t.width, 24 }

// Output has colours only at a terminal whose user has not refused them, and colours change no text.
func TestColours(t *testing.T) {
	for name, c := range map[string]struct {
		width int
		env   map[string]string
		want  bool
	}{
		"a terminal":           {80, nil, true},
		"an empty NO_COLOR":    {80, map[string]string{"NO_COLOR": ""}, true},
		"NO_COLOR":             {80, map[string]string{"NO_COLOR": "1"}, false},
		"a terminal without":   {80, map[string]string{"TERM": "dumb"}, false},
		"a pipe":               {0, nil, false},
		"a pipe of a terminal": {0, map[string]string{"TERM": "xterm"}, false},
	} {
		app, _ := testApp()
		app.System = terminal{width: c.width}
		app.Getenv = func(key string) string { return c.env[key] }
		got := app.paint(red, "drops")
		require.Equal(t, c.want, got != "drops", name)
		require.Equal(t, "drops", ansi.Strip(got), name)
	}
}

func TestStatusKeepsToTheWidth(t *testing.T) {
	app, _ := testApp()
	app.System = terminal{width: 60}
	text := app.statusText(&api.Status{
		Counters: map[string]uint64{"map_full": 3, "no_class_for_a_packet": 4, "no_memory_for_a_socket": 5, "too_deep": 6},
		Problems: []api.Problem{{Message: "the disk is full, and what was wanted is not written down any more", Hint: "make room: df /var/lib/netnice shows how much of it is left"}},
		Programs: []api.Program{
			{Name: "nn_sockops", Attached: true, For: "paces TCP, which it meets as often as a chunk is about to be sent"},
			{Name: "nn_iter", For: ""},
		},
	}, 60)
	for _, line := range strings.Split(text, "\n") {
		require.LessOrEqual(t, ansi.StringWidth(line), 60, "%q", line)
	}
	require.Contains(t, ansi.Strip(text), "\nfaults    map_full 3, no_class_for_a_packet 4,\n          no_memory_for_a_socket 5, too_deep 6\n")
	require.Contains(t, ansi.Strip(text), "\nproblem   the disk is full")
	require.Contains(t, text, "\nnn_sockops  attached  paces TCP, which it meets as often as\n                      a chunk is about to be sent\nnn_iter     detached\n")
	require.NotEqual(t, ansi.Strip(text), text, "faults and problems are coloured")
}
