package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
)

// Limited bounds each user's part of the daemon's time. Requests beyond it wait, and are refused where the wait would
// be too long. countsAs returns the user that a user id counts as. Administrators have no bound.
func Limited(next http.Handler, countsAs func(uid uint32) uint32) http.Handler {
	shares := &shares{now: time.Now, of: make(map[uint32]*share)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by, ok := auth.FromContext(r.Context())
		if !ok || by.Root() {
			next.ServeHTTP(w, r)
			return
		}
		who := countsAs(by.UID)
		wait, ok := shares.take(who, cost(r))
		if !ok {
			writeError(w, auth.Busy(fmt.Sprintf("you have made more than %d requests a second", auth.RequestsPerSec)))
			return
		}
		if wait > 0 {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-r.Context().Done():
				return // the caller has hung up
			}
		}
		counted := &counter{ResponseWriter: w}
		next.ServeHTTP(counted, r)
		shares.charge(who, float64(counted.bytes)/auth.BytesPerCount)
	})
}

// cost returns the number of requests that a request counts as, before its answer is known.
func cost(r *http.Request) float64 {
	if r.URL.Path == reloadPath {
		return auth.ReloadCost
	}
	// The query is parsed as the handlers parse it, however it is written.
	kind, _, _ := strings.Cut(r.URL.Query().Get("subject"), ":")
	switch api.Kind(kind) {
	case api.KindUnit, api.KindContainer:
		return auth.SearchCost
	}
	return 1
}

// shares holds the remaining shares of users.
type shares struct {
	now func() time.Time

	mu sync.Mutex
	of map[uint32]*share
}

// share is one user's remaining share, in requests; less than 0: requests wait.
type share struct {
	left float64
	at   time.Time
}

// sharesKept is the number of users whose shares are kept. Beyond it, users with a full share are dropped.
const sharesKept = 1024

// take takes a share, and returns the time to wait before it is used.
func (s *shares) take(who uint32, cost float64) (wait time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.find(who)
	wait = time.Duration(max(0, cost-u.left) / auth.RequestsPerSec * float64(time.Second))
	if wait > auth.MaxRequestWait {
		return 0, false
	}
	u.left -= cost
	return wait, true
}

// charge takes the further cost of a request that is known only afterwards.
func (s *shares) charge(who uint32, cost float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.find(who).left -= cost
}

// find returns the remaining share of a user now.
func (s *shares) find(who uint32) *share {
	now := s.now()
	u := s.of[who]
	if u == nil {
		if len(s.of) >= sharesKept {
			for id, other := range s.of {
				if other.rest(now); other.left == auth.RequestsAtOnce {
					delete(s.of, id)
				}
			}
		}
		u = &share{left: auth.RequestsAtOnce, at: now}
		s.of[who] = u
	}
	u.rest(now)
	return u
}

// rest adds the share for the time since the last call.
func (u *share) rest(now time.Time) {
	u.left = min(auth.RequestsAtOnce, u.left+now.Sub(u.at).Seconds()*auth.RequestsPerSec)
	u.at = now
}

// counter counts the bytes of an answer.
type counter struct {
	http.ResponseWriter
	bytes int
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.bytes += n
	return n, err
}

// Unwrap is for http.ResponseController.
func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
