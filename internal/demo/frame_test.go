package demo

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// story returns the states of a demo on an ordinary machine.
func story() map[string]State {
	begun := State{
		Planned: 20 * time.Second, Tick: tick,
		Scenes: []Scene{{Title: "unlimited"}, {Title: "limited in mid-transfer"}, {Title: "4 connections share it"}},
	}
	free := begun
	free.Elapsed = 2 * time.Second
	free.Rates = repeat(nil, 20, 12.5e9)
	free.Parts = []Part{ratePart("connection 1", 12.5e9, 0)}

	limited := free
	limited.Elapsed, limited.Scene, limited.Limit = 7*time.Second, 1, limit
	limited.Rates = repeat(limited.Rates, 50, 10e6)
	limited.Scenes = []Scene{
		{Title: "unlimited"},
		{Title: "limited in mid-transfer", Start: 2 * time.Second, Commands: []string{"netnice set --pid 4711 --up 10MB/s"}},
		{Title: "4 connections share it"},
	}
	limited.Parts = []Part{ratePart("connection 1", 10e6, limit)}
	limited.Figures = []Figure{{Step: "unlimited", What: "rate", Text: "12.5 GB/s", Wanted: "what the machine can", Verdict: Good}}

	shared := limited
	shared.Elapsed, shared.Scene, shared.Done = 20*time.Second, 2, true
	shared.Rates = repeat(shared.Rates, 130, 10e6)
	shared.Scenes = []Scene{limited.Scenes[0], limited.Scenes[1], {Title: "4 connections share it", Start: 11 * time.Second}}
	shared.Parts = []Part{
		ratePart("connection 1", 2.5e6, limit), ratePart("connection 2", 2.4e6, limit), ratePart("connection 3", 2.6e6, limit),
		roundTripPart("netnice", 62*time.Microsecond, 10e6), roundTripPart("HTB", 52*time.Millisecond, 9.9e6),
	}
	shared.Figures = append(shared.Figures, heldTo(limit, 10.004e6), heldTo(limit, 11e6))
	for i := range shared.Figures[1:] {
		shared.Figures[i+1].Step = "limited in mid-transfer"
	}
	return map[string]State{"0-begun": begun, "1-free": free, "2-limited": limited, "3-shared": shared}
}

func repeat(rates []float64, n int, rate float64) []float64 {
	out := append([]float64(nil), rates...)
	for range n {
		out = append(out, rate)
	}
	return out
}

// golden compares with a file of testdata; UPDATE_GOLDEN=1 writes it instead.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (UPDATE_GOLDEN=1 accepts it):\n%s", path, diff)
	}
}

func TestFrames(t *testing.T) {
	for name, s := range story() {
		golden(t, "frame-"+name, Frame(s, 80, 30, styleFor(false)))
	}
	golden(t, "frame-small", Frame(story()["2-limited"], 60, 18, styleFor(false)))
	golden(t, "table", Table(story()["3-shared"].Figures, styleFor(false)))
}

// Colours change only colours.
func TestColours(t *testing.T) {
	for name, s := range story() {
		if diff := cmp.Diff(Frame(s, 80, 30, styleFor(false)), ansi.Strip(Frame(s, 80, 30, styleFor(true)))); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// In every state and on every terminal a frame keeps to the width, and its height is the same.
func TestFrameFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := story()["3-shared"]
		s.Rates = rapid.SliceOf(rapid.Float64Range(0, 1e14)).Draw(t, "rates")
		s.Planned = time.Duration(rapid.IntRange(0, 60).Draw(t, "planned")) * time.Second
		s.Parts = s.Parts[:rapid.IntRange(0, len(s.Parts)).Draw(t, "parts")]
		s.Scene = rapid.IntRange(0, len(s.Scenes)-1).Draw(t, "scene")
		width, height := rapid.IntRange(0, 300).Draw(t, "width"), rapid.IntRange(0, 100).Draw(t, "height")
		lines := strings.Split(Frame(s, width, height, styleFor(true)), "\n")
		want := 23
		if height < 24 {
			want = 18
		}
		if len(lines) != want {
			t.Fatalf("%d lines, want %d", len(lines), want)
		}
		for _, l := range lines {
			if w := ansi.StringWidth(l); w > min(max(width, 60), 120) {
				t.Fatalf("line is %d wide in a terminal of %d: %q", w, width, l)
			}
		}
	})
}

func TestPlain(t *testing.T) {
	var out bytes.Buffer
	p := &plain{out: &out}
	states := story()
	for _, name := range []string{"0-begun", "1-free", "1-free", "2-limited", "3-shared"} {
		p.show(states[name])
	}
	golden(t, "plain", out.String())
}

func TestModel(t *testing.T) {
	interrupted := 0
	var m tea.Model = model{width: 80, height: 30, interrupt: func() { interrupted++ }}
	if got := m.View().Content; !strings.Contains(got, "setting up") {
		t.Errorf("before the first state: %q", got)
	}
	state := story()["2-limited"]
	m, _ = m.Update(state)
	if diff := cmp.Diff(Frame(state, 80, 30, styleFor(true)), m.View().Content); diff != "" {
		t.Errorf("the view is not the frame:\n%s", diff)
	}
	m, _ = m.Update(tea.WindowSizeMsg{Width: 60, Height: 18})
	if diff := cmp.Diff(Frame(state, 60, 18, styleFor(true)), m.View().Content); diff != "" {
		t.Errorf("the size was not followed:\n%s", diff)
	}
	m, quit := m.Update(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl})
	if interrupted != 1 || quit != nil {
		t.Errorf("ctrl+c interrupted %d times and quit %v; the demo must clean up before it quits", interrupted, quit != nil)
	}
	if _, quit = m.Update(ended{}); quit == nil {
		t.Error("does not quit when the demo has ended")
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		rate float64
		want Verdict
	}{{10e6, Good}, {10.09e6, Good}, {9.91e6, Good}, {10.2e6, Near}, {9.6e6, Near}, {10.6e6, Off}, {0, Off}} {
		if got := heldTo(10e6, c.rate).Verdict; got != c.want {
			t.Errorf("%.0f of 10 MB/s is %s, want %s", c.rate, got, c.want)
		}
	}
	if got := heldTo(10e6, 0/zero()).Verdict; got != Off {
		t.Errorf("no number is %s", got)
	}
	for _, c := range []struct {
		ours, theirs time.Duration
		want         Verdict
	}{{50, 50000, Good}, {20000, 50000, Near}, {60000, 50000, Off}, {0, 50000, Off}} {
		if got := roundTripFigures(c.ours*time.Microsecond, c.theirs*time.Microsecond)[0].Verdict; got != c.want {
			t.Errorf("%d us beside HTB's %d us is %s, want %s", c.ours, c.theirs, got, c.want)
		}
	}
}

// zero is not a constant, so the compiler does not reject a division by it.
func zero() float64 { return 0 }
