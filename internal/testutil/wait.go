package testutil

import "time"

// Soon is long enough for a busy machine, where the awaited events take milliseconds; Poll is how often to look for them.
const (
	Soon = 5 * time.Second
	Poll = 2 * time.Millisecond
)
