package rulefiles

import (
	"sync/atomic"
	"time"
)

// atomicTime is a clock that a test sets.
type atomicTime struct{ at atomic.Pointer[time.Time] }

func (c *atomicTime) set(at time.Time) { c.at.Store(&at) }
func (c *atomicTime) get() time.Time   { return *c.at.Load() }
