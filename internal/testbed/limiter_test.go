package testbed

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The commands are those in the manual.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	script := filepath.Join(dir, "netnice")
	text := "#!/bin/sh\necho \"$*\" >>" + log + "\n[ \"$1\" != status ] || { echo no daemon is running >&2; exit 1; }\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	c, ctx := Command{Path: script}, context.Background()
	for _, err := range []error{
		c.LimitPID(ctx, 7, 1000), c.LiftPID(ctx, 7), c.LimitUser(ctx, 99, 1250000000), c.LiftUser(ctx, 99),
		c.LimitDownPID(ctx, 7, 2000), c.LimitDownUser(ctx, 99, 3000),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if c.Running(ctx) {
		t.Error("a failing status counts as running")
	}
	if err := c.Run(ctx, "status"); err == nil || !strings.Contains(err.Error(), "no daemon is running") {
		t.Errorf("the error does not hold what the program said: %v", err)
	}
	got, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	want := "set --pid 7 --up 1000B/s\nunset --pid 7\nset --user 99 --up 1250000000B/s\nunset --user 99\n" +
		"set --pid 7 --down 2000B/s\nset --user 99 --down 3000B/s\nstatus\nstatus\n"
	if string(got) != want {
		t.Errorf("ran\n%swant\n%s", got, want)
	}
}
