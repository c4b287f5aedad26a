// Package statefiletest is a state file in memory, for tests of packages that have one.
package statefiletest

import (
	"encoding/json"
	"sync"

	"github.com/netnice/netnice/internal/statefile"
)

// Memory is a file of type C in memory. The zero value is a missing file.
type Memory[C any, P interface {
	*C
	statefile.Content
}] struct {
	mu   sync.Mutex
	text []byte // nil = there is none
}

// Save writes the file, or removes it.
func (m *Memory[C, P]) Save(isEmpty bool, content P) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.text = nil
	if !isEmpty {
		m.text, _ = json.Marshal(content) // the content is the test's own
	}
}

// Load reads the file. It returns false if there is none.
func (m *Memory[C, P]) Load(content P) (found bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.text == nil {
		return false, nil
	}
	if err := statefile.Strictly(m.text, content); err != nil {
		return false, err
	}
	return true, content.Check()
}

// Text returns the file, "" = there is none.
func (m *Memory[C, P]) Text() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return string(m.text)
}
