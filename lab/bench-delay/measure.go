package delay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
)

// benchUID is a user without any other process. The limit is on this user.
const benchUID = 64210

const (
	questionPort = 6110
	httpPort     = 6111
	floodPort    = 6112
	bulkPort     = 6113
)

// programs are the programs of a cell. In A, with the limited user, there are:
//
//	crowd  uses up the limit, and asks: the same program
//	other  asks: another program
//	web    gets small answers by HTTP, or gives them where sending is limited
//
// B has no limit. far answers, and pour uses up the limit where ingress is limited.
type programs struct {
	crowd, other, web, far, pour *program
}

func (p *programs) all() (list []*program) {
	for _, one := range []*program{p.far, p.web, p.crowd, p.other, p.pour} { // servers first, rivals last
		if one != nil {
			list = append(list, one)
		}
	}
	return list
}

func (p *programs) close() error {
	var errs []error
	for _, one := range p.all() {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// tellAll gives all programs the same order.
func (p *programs) tellAll(order string) error {
	for _, one := range p.all() {
		if _, err := one.tell(order); err != nil {
			return fmt.Errorf("%s: %w", order, err)
		}
	}
	return nil
}

// dutiesOf returns the duties of each program of a cell.
func (c cell) dutiesOf(a, b netip.Addr) (crowd, other, web, far, pour duties) {
	at := func(host netip.Addr, port uint16) string { return netip.AddrPortFrom(host, port).String() }
	other = duties{Ask: at(b, questionPort), Every: c.every()}
	crowd, web, far = other, duties{Every: c.every()}, duties{Answer: at(b, questionPort), Every: c.every()}
	source, sink, to := &pour, &crowd, a
	if c.way == up {
		web.Serve, far.Fetch = at(a, httpPort), at(a, httpPort)
		source, sink, to = &crowd, &far, b
	} else {
		far.Serve, web.Fetch = at(b, httpPort), at(b, httpPort)
	}
	if c.beside == udpFlood {
		source.Flood, sink.Drain = at(to, floodPort), at(to, floodPort)
		source.Rate, source.Remote = floodFactor*float64(c.limit), c.way != up
	} else {
		source.Bulk, sink.Read = at(to, bulkPort), at(to, bulkPort)
	}
	return crowd, other, web, far, pour
}

// populate starts a cell's programs, which wait for their orders.
func (c cell) populate(pair *testbed.Pair) (p *programs, err error) {
	p = new(programs)
	crowd, other, web, far, pour := c.dutiesOf(pair.A4, pair.B4)
	for _, one := range []struct {
		to  **program
		in  *testbed.NetNS
		uid uint32
		duties
	}{{&p.far, pair.B, 0, far}, {&p.web, pair.A, benchUID, web}, {&p.crowd, pair.A, benchUID, crowd}, {&p.other, pair.A, benchUID, other}, {&p.pour, pair.B, 0, pour}} {
		if one.duties == (duties{}) {
			continue
		}
		if *one.to, err = startProgram(one.in, one.uid, one.duties); err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	return p, nil
}

// measure runs one cell: the limit is in place before any traffic.
func (c cell) measure(ctx context.Context, b *bed.Bed, pair *testbed.Pair) (f figures, err error) {
	p, err := c.populate(pair)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	user := strconv.Itoa(benchUID)
	if _, err := b.Netnice(ctx, "set", "--user", user, "--"+string(c.way), fmt.Sprintf("%dB/s", c.limit)); err != nil {
		return f, err
	}
	defer func() {
		_, lifted := b.Netnice(context.WithoutCancel(ctx), "unset", "--user", user)
		err = errors.Join(err, lifted)
	}()
	begin := testbed.Now()
	if err := p.tellAll(doStart); err != nil {
		return f, err
	}
	middle, end := begin.Add(windowOf(b)), begin.Add(2*windowOf(b))
	if err := testbed.Sleep(ctx, end.Sub(testbed.Now())); err != nil {
		return f, err
	}
	sink := p.crowd
	if c.way == up {
		sink = p.far
	}
	used, err := sink.tell(doReport)
	if err != nil {
		return f, err
	}
	if err := p.tellAll(doStop); err != nil {
		return f, err
	}
	if err := testbed.Sleep(ctx, lateAnswers); err != nil {
		return f, err
	}
	f = figures{Name: c.String(), Limit: c.limit, Way: c.way, Beside: c.beside, cell: c}
	f.Used = used.Came / used.At.Sub(begin).Seconds() / float64(c.limit)
	client := p.web
	if c.way == up {
		client = p.far
	}
	for _, of := range []struct {
		who  *program
		what func(seen) trips
		to   *[2]delays
	}{{p.crowd, askedBy, &f.Same}, {p.other, askedBy, &f.Other}, {client, fetchedBy, &f.HTTP}} {
		s, err := of.who.tell(doReport)
		if err != nil {
			return f, err
		}
		*of.to = [2]delays{delaysOf(of.what(s), begin, middle), delaysOf(of.what(s), middle, end)}
	}
	return f, nil
}

func askedBy(s seen) trips { return s.Asked }

func fetchedBy(s seen) trips { return s.Fetched }

// measureBaseline measures a path without a limit, and without other traffic.
func measureBaseline(ctx context.Context, pair *testbed.Pair, distant bool) (base baseline, err error) {
	base.Path = "veth"
	if distant {
		base.Path = "relay"
	}
	to := netip.AddrPortFrom(pair.B4, questionPort).String()
	site := netip.AddrPortFrom(pair.B4, httpPort).String()
	far, err := startProgram(pair.B, 0, duties{Answer: to, Serve: site})
	if err != nil {
		return base, err
	}
	defer func() { err = errors.Join(err, far.Close()) }()
	near, err := startProgram(pair.A, benchUID, duties{Ask: to, Fetch: site, Every: 20 * time.Millisecond})
	if err != nil {
		return base, err
	}
	defer func() { err = errors.Join(err, near.Close()) }()
	begin := testbed.Now()
	if _, err := near.tell(doStart); err != nil {
		return base, err
	}
	if err := testbed.Sleep(ctx, baselineTime); err != nil {
		return base, err
	}
	end := testbed.Now()
	if _, err := near.tell(doStop); err != nil {
		return base, err
	}
	if err := testbed.Sleep(ctx, 10*roundTrip); err != nil { // for the packets on the way
		return base, err
	}
	s, err := near.tell(doReport)
	base.Question, base.HTTP = delaysOf(s.Asked, begin, end), delaysOf(s.Fetched, begin, end)
	return base, err
}
