package request

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
)

// diary notes what happens in a request, in order. It is the host, the transaction and the request at once.
type diary struct {
	Exchange
	lines   []string
	fails   string // the step that fails
	answers bool
}

var errFailed = errors.New("failed")

func (d *diary) note(what string) error {
	if d.lines = append(d.lines, what); what == d.fails {
		return errFailed
	}
	return nil
}

func (d *diary) Check() error                  { return d.note("check") }
func (d *diary) Resolve(context.Context) error { return d.note("resolve") }
func (d *diary) Find() error                   { return d.note("find") }
func (d *diary) Authorise() error              { return d.note("authorise") }
func (d *diary) Admit() error                  { return d.note("admit") }
func (d *diary) Apply(*diary) error            { return d.note("apply") }
func (d *diary) Finish()                       { _ = d.note("finish") }
func (d *diary) Lock()                         { _ = d.note("lock") }
func (d *diary) Unlock()                       { _ = d.note("unlock") }
func (d *diary) Begin() (*diary, error)        { return d, d.note("begin") }
func (d *diary) Drain()                        { _ = d.note("drain") }
func (d *diary) Commit()                       { _ = d.note("commit") }

func (d *diary) Plan(*diary) error {
	d.Answer.Changed, d.IsAnswered, d.HasLifted = true, d.answers, true
	return d.note("plan")
}

func (d *diary) RollBack(cause error) error {
	_ = d.note("roll back")
	return cause
}

func TestSteps(t *testing.T) {
	const prepared = "check resolve lock begin find authorise plan admit "
	for what, c := range map[string]struct {
		request *diary
		want    string
	}{
		"all":         {&diary{}, prepared + "apply commit finish unlock end drain"},
		"a dry run":   {&diary{Exchange: Exchange{DryRun: true}}, prepared + "finish roll back unlock end drain"},
		"nothing":     {&diary{answers: true}, "check resolve lock begin find authorise plan roll back unlock end drain"},
		"impossible":  {&diary{fails: "check"}, "check end"},
		"unknown":     {&diary{fails: "resolve"}, "check resolve end"},
		"daemon gone": {&diary{fails: "begin"}, "check resolve lock begin unlock end"},
		"denied":      {&diary{fails: "authorise"}, "check resolve lock begin find authorise roll back unlock end"},
		"full":        {&diary{fails: "admit"}, prepared + "roll back unlock end drain"},
		"refused":     {&diary{fails: "apply"}, prepared + "apply roll back unlock end drain"},
	} {
		d := c.request
		d.AtEnd = []func(){func() { _ = d.note("end") }}
		answer, err := Carry[*diary](t.Context(), d, d)
		require.Equal(t, c.want, strings.Join(d.lines, " "), what)
		require.Equal(t, d.fails != "", err != nil, what)
		require.Equal(t, err == nil, answer.Changed, what)
		if err != nil {
			require.Equal(t, api.SetResponse{}, answer, what)
		}
	}
}

// A rehearsal goes as far as a request without Apply, and leaves nothing behind.
func TestRehearse(t *testing.T) {
	d := &diary{}
	require.NoError(t, Rehearse[*diary](d, d))
	require.Equal(t, "lock begin find authorise plan admit roll back unlock", strings.Join(d.lines, " "))
	d = &diary{fails: "find"}
	require.ErrorIs(t, Rehearse[*diary](d, d), errFailed)
}

func TestTransaction(t *testing.T) {
	var tx Transaction
	require.True(t, tx.IsEmpty())
	var done []string
	note := func(what string) func() { return func() { done = append(done, what) } }
	for _, what := range []string{"first", "second"} {
		tx.OnFailure(func() error {
			note(what)()
			return errors.New(what)
		})
		tx.Write(note("write " + what))
		tx.Then(note("then " + what))
	}
	require.EqualError(t, errors.Join(tx.Undo()...), "second\nfirst")
	require.Equal(t, []string{"second", "first"}, done)
	done = nil
	tx.Finish(note("state"))
	require.Equal(t, []string{"write first", "write second", "state", "then first", "then second"}, done)
}
