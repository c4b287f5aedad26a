package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

func TestMain(m *testing.M) {
	testbed.MaybeRunTraffic()
	testutil.Supervise()
	os.Exit(m.Run())
}

// shaper replaces the netnice command: it shapes the demo's whole link. The shape keeps to the limits, and does not
// share as netnice does.
type shaper struct {
	director *director
	ran      []string
	fail     string // a command with this prefix fails
}

func (s *shaper) Output(_ context.Context, args ...string) ([]byte, error) {
	command := strings.Join(args, " ")
	s.ran = append(s.ran, command)
	if s.fail != "" && strings.HasPrefix(command, s.fail) {
		return nil, errors.New("refused")
	}
	link := func(ip float64) uint64 { return uint64(ip * 1514 / 1500) }
	switch rate := args[len(args)-1]; {
	case args[0] == "status":
		return nil, errors.New("no daemon is running")
	case args[0] == "unset" && args[1] == "--pid":
		return nil, nil // its link disappears next
	case args[0] == "unset":
		return nil, testbed.Unshape(s.director.stage.pair.A)
	case rate == limitText:
		return nil, testbed.ShapeHTB(s.director.stage.pair.A, link(limit))
	case rate == homeUpText && args[3] == "--down":
		return nil, testbed.ShapeHTB(s.director.stage.home.pair.B, link(homeUp))
	case rate == homeUpText:
		return nil, testbed.ShapeHTB(s.director.stage.home.pair.A, link(homeUp))
	case rate == userLimitText:
		return nil, testbed.ShapeHTB(s.director.stage.pair.A, link(userLimit))
	}
	return nil, fmt.Errorf("unknown command %q", command)
}

func hurried(fail string) (*director, *shaper) {
	s := &shaper{fail: fail}
	d := newDirector(s)
	d.pace = 0.2
	s.director = d
	return d, s
}

func TestDemo(t *testing.T) {
	testutil.RequireRoot(t)
	d, s := hurried("")
	var out bytes.Buffer
	p := &plain{out: &out}
	begin := time.Now()
	if err := d.direct(context.Background(), p.show); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if took := time.Since(begin); took > 12*time.Second {
		t.Errorf("took %v at a fifth of the length", took)
	}
	for i, sc := range d.state.Scenes {
		if !strings.Contains(out.String(), fmt.Sprintf("\n%d  %s\n", i+1, sc.Title)) {
			t.Errorf("scene %q is not in the output", sc.Title)
		}
	}
	for _, want := range []string{"rate", "fairness (Jain)", "parent : child", "1 connection : 8", "RTT, netnice", "RTT, HTB", "call, with limits", "daemon"} {
		if !strings.Contains(Table(d.state.Figures, styleFor(false)), ": "+want) {
			t.Errorf("no figure %q", want)
		}
	}
	for _, f := range d.state.Figures {
		if f.What == "rate" && f.Verdict == Off {
			t.Errorf("%s: %s instead of %s", f.Step, f.Text, f.Wanted)
		}
	}
	var sets, unsets int
	for _, c := range s.ran {
		switch {
		case strings.HasPrefix(c, "set "):
			sets++
		case strings.HasPrefix(c, "unset "):
			unsets++
		}
	}
	if sets != 5 || unsets != 4 {
		t.Errorf("commands %q: want 5 set, 4 unset", s.ran)
	}
	if t.Failed() || testing.Verbose() {
		t.Logf("%s%s", &out, Table(d.state.Figures, styleFor(false)))
	}
}

// Whenever the demo ends early, it lifts its limits and returns its error.
func TestDemoEndsEarly(t *testing.T) {
	testutil.RequireRoot(t)
	t.Run("interrupted", func(t *testing.T) {
		d, s := hurried("")
		d.pace = 0.1
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		err := d.direct(ctx, func(st State) {
			if st.Scene == 4 && len(st.Scenes[4].Commands) > 0 && len(st.Parts) == 2 {
				cancel()
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want that it was cancelled", err)
		}
		if last := s.ran[len(s.ran)-1]; last != "unset --user "+d.stage.user() {
			t.Errorf("ran %q, want the user's limit lifted at the end", s.ran)
		}
	})
	t.Run("refused", func(t *testing.T) {
		d, _ := hurried("set --pid")
		err := d.direct(context.Background(), func(State) {})
		if err == nil || !strings.Contains(err.Error(), "mid-transfer: refused") {
			t.Errorf("error %v, want what netnice said", err)
		}
		for _, tx := range d.stage.senders {
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", tx.PID())); err == nil {
				t.Errorf("sender %d is still there", tx.PID())
			}
		}
	})
}

func TestVerdictAndJSON(t *testing.T) {
	s := State{Elapsed: 30 * time.Second, Figures: []Figure{heldTo(10e6, 10.05e6), heldTo(10e6, 10.3e6)}}
	if err := verdict(s.Figures); err != nil {
		t.Errorf("near is not far off: %v", err)
	}
	s.Figures = append(s.Figures, heldTo(10e6, 11e6))
	if err := verdict(s.Figures); !errors.Is(err, ErrFarOff) || !strings.Contains(err.Error(), "11.00 MB/s") {
		t.Errorf("verdict %v, want ErrFarOff with the rate", err)
	}
	var out bytes.Buffer
	if err := writeJSON(&out, s); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Version string
		Seconds float64
		Figures []Figure
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != "v1" || got.Seconds != 30 || len(got.Figures) != 3 || got.Figures[1].Verdict != Near {
		t.Errorf("read back %+v", got)
	}
}
