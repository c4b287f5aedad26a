package cli

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJournalPriorities(t *testing.T) {
	var out bytes.Buffer
	a := &App{Err: &out, Journal: true}
	log := a.logger(a.Err, slog.LevelInfo).With("node", 7)
	log.Debug("nobody asked")
	log.Info("limit set", "level", "high", "time", "now")
	log.Warn("two\nlines")
	log.WithGroup("of").Error("broken", "err", "no room")
	require.Equal(t, "<6>msg=\"limit set\" node=7 level=high time=now\n<4>msg=\"two\\nlines\" node=7\n<3>msg=broken node=7 of.err=\"no room\"\n", out.String())

	out.Reset()
	require.Equal(t, exitUsage, a.report(fail("do this\nor that", "no bpffs")))
	require.Equal(t, "<3>netnice: no bpffs\n<3>  do this\n<3>  or that\n", out.String())

	out.Reset()
	a.Journal = false
	a.logger(a.Err, slog.LevelDebug).Debug("asked for")
	require.Regexp(t, `^time=\S+ level=DEBUG msg="asked for"\n$`, out.String())
	require.Equal(t, journalDebug, journalPriority(slog.LevelDebug))
}
