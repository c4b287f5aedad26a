package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

func TestMain(m *testing.M) {
	testbed.MaybeRunTraffic()
	os.Exit(m.Run())
}

func TestParse(t *testing.T) {
	o, err := parse(flag.NewFlagSet("traffic", flag.ContinueOnError), []string{"-n", "3", "-at", "1s=echo a=b", "-at", "20ms=true", "-uid", "77", "-mode", "short"})
	if err != nil {
		t.Fatal(err)
	}
	want := []timed{{time.Second, "echo a=b"}, {20 * time.Millisecond, "true"}}
	if len(o.at) != 2 || o.at[0] != want[0] || o.at[1] != want[1] {
		t.Errorf("commands %v, want %v", o.at, want)
	}
	if o.sender.UID != 77 || o.sender.Connections != 3 || o.sender.Mode != testbed.Short {
		t.Errorf("sender %+v", o.sender)
	}
	for _, args := range [][]string{{"-at", "true"}, {"-at", "x=true"}, {"-t", "0s"}, {"-n", "0"}, {"-interval", "1ms"}, {"-uid", "bob"}, {"extra"}} {
		if _, err := parse(flag.NewFlagSet("traffic", flag.ContinueOnError), args); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}

func TestRun(t *testing.T) {
	testutil.RequireRoot(t)
	file := filepath.Join(t.TempDir(), "figures.json")
	o, err := parse(flag.NewFlagSet("traffic", flag.ContinueOnError), []string{
		"-n", "2", "-procs", "2", "-t", "700ms", "-interval", "100ms", "-htb", "5e6", "-fork", "100ms", "-json", file,
		"-before", "test -n \"$PID2\" && echo before", "-at", "200ms=kill -0 $PID $RPID && test -e $NS_A && echo during",
	})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(context.Background(), o, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{"before\n", "during\n", "child ", " 0.50 s ", "Jain index"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r result
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.PerConn) != 5 || len(r.PerPort) != 3 || r.LinkRate < 3e6 || r.LinkRate > 7e6 {
		t.Errorf("figures %+v", r)
	}
}

func TestDistance(t *testing.T) {
	testutil.SkipUnlessAll(t, "what the bench measures with has tests of its own in this package")
	testutil.RequireRoot(t)
	o, err := parse(flag.NewFlagSet("traffic", flag.ContinueOnError), []string{"-t", "1s", "-q", "-delay", "10ms", "-loss", "0.01", "-rate", "5e6", "-cc", "bbr"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(context.Background(), o, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "path from A to B") || !strings.Contains(out.String(), ", 0 unwanted") {
		t.Errorf("no path in\n%s", &out)
	}
	t.Log(&out)
}

func TestFailingCommandIsTold(t *testing.T) {
	testutil.RequireRoot(t)
	o, err := parse(flag.NewFlagSet("traffic", flag.ContinueOnError), []string{"-t", "2s", "-q", "-at", "50ms=exit 3"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(context.Background(), o, &out); err == nil || !strings.Contains(err.Error(), "exit 3") {
		t.Errorf("error %v, want the command's", err)
	}
}
