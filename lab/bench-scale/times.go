package scale

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/stat"
)

// times holds the durations of commands, in seconds, for the number of limits in Limits.
type times struct {
	Limits    int         `json:"limits"`
	ByCommand stat.Spread `json:"set_by_one_netnice_each"` // all limits
	ByClient  stat.Spread `json:"set_by_client_library"`   // all limits
	Change    stat.Spread `json:"change_of_one_by_client_library"`
	List      stat.Spread `json:"netnice_ls"`
	ListJSON  stat.Spread `json:"netnice_ls_json"`
	Idle      stat.Spread `json:"daemon_cpu_seconds_per_second_idle"`
	Down      stat.Spread `json:"down"`
}

// measureTimes limits idle processes, and repeats that three times.
func measureTimes(ctx context.Context, b *bed.Bed, nodes int) (t times, err error) {
	repeat := 3
	if b.Quick {
		repeat = 1
	}
	t.Limits = nodes
	var pids []int
	for range nodes {
		cmd, err := b.Start(nil, "sleep", "infinity")
		if err != nil {
			return t, err
		}
		pids = append(pids, cmd.Process.Pid)
	}
	var byCommand, byClient, change, list, listJSON, idle, down []float64
	clock := func(into *[]float64, fn func() error) error {
		begin := testbed.Now()
		err := fn()
		*into = append(*into, testbed.Now().Sub(begin).Seconds())
		return err
	}
	for range repeat {
		for _, way := range []struct {
			into *[]float64
			set  func(pid int) error
		}{
			{&byCommand, func(pid int) error { return b.LimitPID(ctx, pid, 1e6) }},
			{&byClient, func(pid int) error { return setByClient(ctx, b, pid, 1e6) }},
		} {
			if err := b.Up(ctx); err != nil {
				return t, err
			}
			err := clock(way.into, func() error {
				for _, pid := range pids {
					if err := way.set(pid); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return t, err
			}
			for i := range 10 {
				if err := clock(&change, func() error { return setByClient(ctx, b, pids[i], 2e6) }); err != nil {
					return t, err
				}
			}
			for _, l := range []struct {
				into *[]float64
				args []string
			}{{&list, []string{"ls"}}, {&listJSON, []string{"ls", "--json"}}} {
				for range 5 {
					if err := clock(l.into, func() error { _, err := b.Netnice(ctx, l.args...); return err }); err != nil {
						return t, err
					}
				}
			}
			part, err := idleCPU(ctx, b)
			if err != nil {
				return t, err
			}
			idle = append(idle, part)
			if err := clock(&down, func() error { return b.Down(ctx) }); err != nil {
				return t, err
			}
		}
	}
	b.Printf("\nwith %d limits on %d idle processes, seconds (min median max of n)\n", nodes, nodes)
	for _, row := range []struct {
		name   string
		values []float64
		into   *stat.Spread
	}{
		{"set all, one netnice each", byCommand, &t.ByCommand},
		{"set all, client library", byClient, &t.ByClient},
		{"change one, client library", change, &t.Change},
		{"netnice ls", list, &t.List},
		{"netnice ls --json", listJSON, &t.ListJSON},
		{"daemon's CPU, nothing to do", idle, &t.Idle},
		{"lift all, end the daemon", down, &t.Down},
	} {
		*row.into = stat.Of(row.values)
		b.Printf("%-28s %8.4f %8.4f %8.4f  (%d)\n", row.name, row.into.Min, row.into.Median, row.into.Max, row.into.N)
	}
	return t, nil
}

// idleCPU returns the part of one CPU that the daemon uses while limits are in force, without requests.
func idleCPU(ctx context.Context, b *bed.Bed) (float64, error) {
	const length = 3 * time.Second
	before, err := b.CPU()
	if err != nil {
		return 0, err
	}
	if err := testbed.Sleep(ctx, length); err != nil {
		return 0, err
	}
	after, err := b.CPU()
	return (after - before) / length.Seconds(), err
}

// setByClient limits a process by one call of the client library.
func setByClient(ctx context.Context, b *bed.Bed, pid int, bytesPerSec uint64) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	_, err := b.Client.Set(ctx, api.SetRequest{
		Subject: api.Subject{Kind: api.KindPID, ID: strconv.Itoa(pid)},
		Wish:    api.Wish{UpBytesPerSec: &bytesPerSec},
	})
	if err != nil {
		return fmt.Errorf("limit process %d: %w", pid, err)
	}
	return nil
}
