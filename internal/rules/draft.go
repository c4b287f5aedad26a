package rules

import (
	"errors"
	"fmt"

	"github.com/pelletier/go-toml/v2"
)

// Draft is a rule that a command writes: a program, and the limits of each process that runs it.
type Draft struct {
	Name    string `toml:"name,omitempty"`
	Program string `toml:"program"`
	// The rates are texts as in a rule; "" = not set.
	Up      string `toml:"up,omitempty"`
	Down    string `toml:"down,omitempty"`
	Total   string `toml:"total,omitempty"`
	Min     string `toml:"min,omitempty"`
	MinDown string `toml:"min_down,omitempty"`
	Weight  uint32 `toml:"weight,omitempty"` // 0 = not set
}

// DraftError says that a draft is no rule that its author may add. It has no position, because the rule is in no file.
type DraftError struct {
	Message string
	Denied  bool // the administrator may add the rule
}

func (e *DraftError) Error() string { return e.Message }

// text returns the draft as the text of a file of rules.
func (d Draft) text() ([]byte, error) {
	text, err := toml.Marshal(struct {
		Rule []Draft `toml:"rule"`
	}{[]Draft{d}})
	if err != nil {
		return nil, fmt.Errorf("write the rule for %q: %w", d.Program, err)
	}
	return text, nil
}

// validate checks the draft by itself, before addTo adds it to a file. An error is of type DraftError.
func (d Draft) validate(in Context) error {
	text, err := d.text()
	if err != nil {
		return err
	}
	var mistakes Problems
	if _, err := Parse("", text, Context{}); errors.As(err, &mistakes) {
		return &DraftError{Message: mistakes[0].Message}
	}
	if _, err := Parse("", text, in); errors.As(err, &mistakes) {
		return &DraftError{Message: mistakes[0].Message, Denied: true}
	}
	return nil
}
