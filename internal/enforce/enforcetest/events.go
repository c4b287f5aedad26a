package enforcetest

import "github.com/netnice/netnice/internal/enforce"

// Events implements enforce.Events.
func (k *Kernel) Events() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.events == nil {
		k.events = make(chan struct{}, 1)
	}
	return k.events
}

// Event makes Events deliver.
func (k *Kernel) Event() {
	k.Events()
	k.events <- struct{}{}
}

// FollowExecs implements enforce.Events.
func (k *Kernel) FollowExecs(on bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.following = on
	return k.enter("FollowExecs")
}

// Follows reports whether the daemon follows exec events.
func (k *Kernel) Follows() bool { k.mu.Lock(); defer k.mu.Unlock(); return k.following }

// Execs implements enforce.Events.
func (k *Kernel) Execs() <-chan enforce.Exec {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.execChannel()
}

func (k *Kernel) execChannel() chan enforce.Exec {
	if k.execs == nil {
		k.execs = make(chan enforce.Exec)
	}
	return k.execs
}

// Exec makes Execs deliver.
func (k *Kernel) Exec(pid int) {
	k.mu.Lock()
	list := k.execChannel()
	k.mu.Unlock()
	list <- enforce.Exec{PID: pid}
}

// LostEvents implements enforce.Events.
func (k *Kernel) LostEvents() (uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lost, k.enter("LostEvents")
}

// Lose makes LostEvents count one more.
func (k *Kernel) Lose() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lost++
}
