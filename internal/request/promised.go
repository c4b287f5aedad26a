package request

import (
	"fmt"
	"time"

	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/observe"
	"github.com/netnice/netnice/internal/units"
)

// promisedLong is the shortest delay by promised data that the daemon warns of.
const promisedLong = time.Second

// PromisedWarnings warns of data that a new or lowered limit on received traffic cannot hold back. TCP has promised to
// take as much as its windows had room for. The promised data may be on its way, arrives first, and waits. The sample
// now is of the limited node alone.
func PromisedWarnings(now observe.Sample, had, want limit.Limit) []string {
	rate := want.Down
	if want.Total != 0 && !want.MeterOff && (rate == 0 || want.Total < rate) {
		rate = want.Total
	}
	if rate == 0 || want.Down == had.Down && want.Total == had.Total {
		return nil
	}
	var promised uint64
	for _, s := range now.Sockets {
		promised += s.PromisedBytes
	}
	seconds := float64(promised) / float64(rate)
	if seconds < promisedLong.Seconds() {
		return nil
	}
	return []string{fmt.Sprintf("its connections have promised to take %s, of which a part may be on its way: what they receive is late by up to %s at first",
		units.FormatBytes(promised, units.Bytes), units.FormatDuration(uint64(seconds*1e9)))}
}
