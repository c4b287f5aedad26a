package auth

import "sync"

// InFlight counts the requests of one kind that wait or are being answered, for each user. The zero value counts none.
type InFlight struct {
	mu    sync.Mutex
	users map[uint32]int
	all   int
}

// Enter counts one more request of a user. The caller calls leave when the request has its answer. If the user has
// most requests already, or all users have mostOfAll, Enter counts nothing, and leave is nil. It also returns the numbers
// before the call.
func (f *InFlight) Enter(uid uint32, most, mostOfAll int) (leave func(), own, all int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if own, all = f.users[uid], f.all; own >= most || all >= mostOfAll {
		return nil, own, all
	}
	if f.users == nil {
		f.users = make(map[uint32]int)
	}
	f.users[uid]++
	f.all++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.all--
		if f.users[uid]--; f.users[uid] == 0 {
			delete(f.users, uid)
		}
	}, own, all
}
