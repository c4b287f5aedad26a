package scenario

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/testbed"
)

const (
	// tries is the number of times that a rate may be too low: an emulated machine waits for a processor of a real
	// one.
	tries = 3
	// starved is the part of the time without a processor from which on a low rate proves nothing. busy is the part
	// of the time from which on the machine's own processor has nothing left.
	starved = 0.15
	busy    = 0.8
	// unlimited is a rate that no limit has held, whatever the machine did.
	unlimited = 1.5
)

// rated repeats a test until the rate is nearly the limit (nearly). The rate may be lower in some tries, but never
// higher in a try in which the machine had a processor. Tries without one show only that there is a limit.
func rated(t *testing.T, limit float64, try func(t *testing.T) float64) {
	t.Helper()
	for n := 1; ; n++ {
		rate, stood, used := 0.0, standstill(), processors(t)
		t.Run(fmt.Sprint("try ", n), func(t *testing.T) { rate = try(t) / limit })
		still, part := stood(), used()
		t.Logf("%.3f of the limit; the machine stood still %.0f%% of the time and was busy %.0f%%", rate, still*100, part*100)
		if t.Failed() || rate > 1-nearly && rate < 1+nearly {
			return
		}
		if had := still < starved && part < busy; n == tries || had && rate > 1 {
			require.False(t, had, "%.3f of the limit, and the machine had time", rate)
			require.Less(t, rate, unlimited)
			return
		}
	}
}

// processors returns a function that returns the part of the time since then in which the processors were used.
func processors(t *testing.T) func() float64 {
	t.Helper()
	begin := time.Now()
	before, err := testbed.ReadMachineCPU()
	require.NoError(t, err)
	return func() float64 {
		now, err := testbed.ReadMachineCPU()
		require.NoError(t, err)
		return now.Sub(before).Busy / float64(runtime.NumCPU()) / time.Since(begin).Seconds()
	}
}

// standstill detects times in which nothing ran here. The returned function returns their part of the time since
// then.
func standstill() func() float64 {
	const nap, late = 5 * time.Millisecond, 10 * time.Millisecond
	begin, stop, lost := time.Now(), make(chan bool), make(chan time.Duration)
	go func() {
		var sum time.Duration
		for {
			select {
			case <-stop:
				lost <- sum
				return
			default:
			}
			before := time.Now()
			time.Sleep(nap)
			if d := time.Since(before) - nap; d > late {
				sum += d
			}
		}
	}()
	return func() float64 {
		stop <- true
		return (<-lost).Seconds() / time.Since(begin).Seconds()
	}
}
