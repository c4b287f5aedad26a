package demo

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/netnice/netnice/internal/testbed"
)

// scene is a step of the script.
type scene struct {
	title  string
	length time.Duration
	play   func(context.Context, time.Duration) error
}

// These are the limits of the demo, in IP bytes per second, and as typed.
const (
	limit, limitText         = 10e6, "10MB/s"
	userLimit, userLimitText = 20e6, "20MB/s"
	connections              = 4
	many                     = 8 // connections of the greedier of the user's programs
)

// script returns the story. Later scenes use the programs of earlier ones.
func (d *director) script() []scene {
	p := &program{director: d}
	return []scene{
		{"unlimited", 2500 * time.Millisecond, p.unlimited},
		{"limited in mid-transfer", 4 * time.Second, p.limited},
		{fmt.Sprintf("%d connections share it", connections), 4 * time.Second, p.grow},
		{"a child process shares it", 4 * time.Second, p.fork},
		{"a user's limit over two programs", 4500 * time.Millisecond, p.user},
		{"lifted again", 2500 * time.Millisecond, p.lift},
		{"beside HTB on such a link", 5 * time.Second, p.roundTrip},
		{"a call beside a backup and a download", 8 * time.Second, p.atHome},
	}
}

// program carries the senders from scene to scene.
type program struct {
	*director
	tx        *testbed.Sender
	one, many *testbed.Sender
	free      float64 // the unlimited rate
}

func (p *program) unlimited(ctx context.Context, length time.Duration) error {
	var err error
	if p.tx, err = p.stage.sender(p.stage.pair, portProgram, testbed.SenderConfig{}); err != nil {
		return err
	}
	p.draw(p.connections("connection", portProgram, 0))
	begin, err := p.tx.Start()
	if err != nil {
		return err
	}
	if err := testbed.Sleep(ctx, length); err != nil {
		return err
	}
	if p.free, err = p.rate(begin.Add(length/5), 0, p.tx); err != nil {
		return err
	}
	p.figure(atLeast(p.free, 10*limit, 2*limit, "what the machine can"))
	return nil
}

func (p *program) limited(ctx context.Context, length time.Duration) error {
	p.draw(p.connections("connection", portProgram, limit))
	from, to, err := p.command(ctx, limit, "set", "--pid", strconv.Itoa(p.tx.PID()), "--up", limitText)
	if err != nil {
		return err
	}
	settled := p.settled()
	if err := testbed.Sleep(ctx, length); err != nil {
		return err
	}
	p.figure(inForce(p.stage.rx, from, to))
	return p.held(limit, settled, p.tx)
}

// inForce returns the time from the end of the command until the receiver gets at most a fifth more than the limit.
func inForce(rx *testbed.Receiver, from, to testbed.Instant) Figure {
	const window, longest = 100 * time.Millisecond, 3 * time.Second
	f := Figure{What: "in force after the command", Unit: "ms", Wanted: "within 100 ms"}
	for at := from; at < to.Add(longest); at = at.Add(counted / 5) {
		if rx.Goodput(portProgram, at, at.Add(window))*ipFactor <= 1.2*limit {
			took := max(at.Sub(to), 0)
			f.Value, f.Text = took.Seconds()*1e3, fmt.Sprintf("%d ms", took.Milliseconds())
			f.Verdict = judge(took.Seconds(), 0.1, 1)
			return f
		}
	}
	f.Value, f.Text, f.Verdict = longest.Seconds()*1e3, "never", Off
	return f
}

func (p *program) grow(ctx context.Context, length time.Duration) error {
	p.draw(p.connections("connection", portProgram, limit))
	if err := p.tx.Grow(connections - 1); err != nil {
		return err
	}
	from := p.settled()
	if err := testbed.Sleep(ctx, length); err != nil {
		return err
	}
	if err := p.held(limit, from, p.tx); err != nil {
		return err
	}
	rates := p.stage.rx.ConnGoodputs(portProgram, from, testbed.Now().Add(-late))
	j := testbed.Jain(rates)
	f := Figure{What: "fairness (Jain)", Value: j, Unit: "ratio", Text: fmt.Sprintf("%.3f", j), Wanted: "at least 0.99"}
	f.Verdict = judge(1-j, 0.01, 0.1)
	p.figure(f)
	return nil
}

func (p *program) fork(ctx context.Context, length time.Duration) error {
	to := p.stage.pair.B4.String() + ":" + strconv.Itoa(portChild)
	pid, err := p.tx.Fork(testbed.SenderConfig{To: to, Congestion: "cubic"})
	if err != nil {
		return err
	}
	p.draw(p.programs(limit, map[uint16]string{
		portProgram: fmt.Sprintf("pid %d, %d conn.", p.tx.PID(), connections),
		portChild:   fmt.Sprintf("child %d, 1 conn.", pid),
	}))
	from := p.settled()
	if err := testbed.Sleep(ctx, length); err != nil {
		return err
	}
	if err := p.held(limit, from, p.tx); err != nil {
		return err
	}
	p.figure(p.half("parent : child", from, portProgram, portChild))
	_, err = p.tx.Stop()
	return err
}

func (p *program) user(ctx context.Context, length time.Duration) error {
	var err error
	// The limit precedes the programs: a user's limit needs no running program.
	p.stage.userLimited = true
	if _, _, err = p.command(ctx, userLimit, "set", "--user", p.stage.user(), "--up", userLimitText); err != nil {
		return err
	}
	for _, s := range []struct {
		tx    **testbed.Sender
		port  uint16
		conns int
	}{{&p.one, portOne, 1}, {&p.many, portMany, many}} {
		*s.tx, err = p.stage.sender(p.stage.pair, s.port, testbed.SenderConfig{Connections: s.conns, UID: p.stage.uid})
		if err != nil {
			return err
		}
		if _, err := (*s.tx).Start(); err != nil {
			return err
		}
	}
	p.draw(p.programs(userLimit, map[uint16]string{
		portOne:  fmt.Sprintf("pid %d, 1 conn.", p.one.PID()),
		portMany: fmt.Sprintf("pid %d, %d conn.", p.many.PID(), many),
	}))
	from := p.settled()
	if err := testbed.Sleep(ctx, length); err != nil {
		return err
	}
	if err := p.held(userLimit, from, p.one, p.many); err != nil {
		return err
	}
	p.figure(p.half("1 connection : 8", from, portOne, portMany))
	return nil
}

func (p *program) lift(ctx context.Context, length time.Duration) error {
	_, to, err := p.command(ctx, 0, "unset", "--user", p.stage.user())
	if err != nil {
		return err
	}
	p.stage.userLimited = false
	p.draw(p.programs(p.free, map[uint16]string{
		portOne:  fmt.Sprintf("pid %d", p.one.PID()),
		portMany: fmt.Sprintf("pid %d", p.many.PID()),
	}))
	if err := testbed.Sleep(ctx, length); err != nil {
		return err
	}
	rate, err := p.rate(to.Add(length/5), 0, p.one, p.many)
	if err != nil {
		return err
	}
	p.figure(atLeast(rate, p.free/2, 2*userLimit, "as before"))
	for _, tx := range []*testbed.Sender{p.one, p.many} {
		if _, err := tx.Stop(); err != nil {
			return err
		}
	}
	return nil
}

// rate returns the IP bytes per second to a port (0 = all) from then until now; the senders report the share of
// headers.
func (p *program) rate(from testbed.Instant, port uint16, senders ...*testbed.Sender) (float64, error) {
	var conns []testbed.ConnInfo
	for _, tx := range senders {
		infos, _, err := tx.Info()
		if err != nil {
			return 0, err
		}
		conns = append(conns, infos...)
	}
	payload := p.stage.rx.Goodput(port, from, testbed.Now().Add(-late))
	return payload * testbed.HeadersOfAll(conns).IPFactor, nil
}

// held adds a figure for the rate of all senders together since then.
func (p *program) held(limit float64, from testbed.Instant, senders ...*testbed.Sender) error {
	rate, err := p.rate(from, 0, senders...)
	if err != nil {
		return err
	}
	p.figure(heldTo(limit, rate))
	return nil
}

// half returns a figure for two programs that should get equal rates.
func (p *program) half(what string, from testbed.Instant, a, b uint16) Figure {
	to := testbed.Now().Add(-late)
	x, y := p.stage.rx.Goodput(a, from, to), p.stage.rx.Goodput(b, from, to)
	share := x / (x + y)
	f := Figure{What: what, Value: share, Unit: "ratio", Wanted: "50 : 50 ± 3"}
	f.Text = fmt.Sprintf("%.1f : %.1f", share*100, 100-share*100)
	f.Verdict = judge(math.Abs(share-0.5), 0.03, 0.2)
	return f
}
