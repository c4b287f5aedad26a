package request

import "slices"

// Transaction is a change of several things, all or none. It holds the calls that undo its steps, and those that are
// left for its end. The zero value is one without a step.
type Transaction struct {
	undo         []func() error // in the order of the steps
	writes, then []func()
}

// OnFailure says how a step is undone.
func (t *Transaction) OnFailure(undo func() error) { t.undo = append(t.undo, undo) }

// Write adds a file to be written at the end, before the one that relies on it.
func (t *Transaction) Write(write func()) { t.writes = append(t.writes, write) }

// Then adds what cannot fail, and is due once all is in force and written.
func (t *Transaction) Then(then func()) { t.then = append(t.then, then) }

// IsEmpty reports whether there is nothing to undo.
func (t *Transaction) IsEmpty() bool { return len(t.undo) == 0 }

// Finish ends the transaction. Its argument writes what relies on the files of Write.
func (t *Transaction) Finish(write func()) {
	for _, first := range t.writes {
		first()
	}
	write()
	for _, then := range t.then {
		then()
	}
}

// Undo undoes all steps, the last first. It returns an error for each that could not be undone.
func (t *Transaction) Undo() (left []error) {
	for _, undo := range slices.Backward(t.undo) {
		if err := undo(); err != nil {
			left = append(left, err)
		}
	}
	return left
}
