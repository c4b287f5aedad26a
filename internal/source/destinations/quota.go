package destinations

import (
	"fmt"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/request"
	"github.com/netnice/netnice/internal/rules"
)

// Admit refuses a limit beyond the number that the kernel side can compare or hold. A limit without an id is a new one.
func (s *Source[T]) Admit(n Node, p Part) error {
	if n.Under == 0 && !p.isAlone(n) {
		n.Under = p.Under.Kind
	}
	return s.admit(n)
}

func (a *Assignment) admit(n Node) error {
	extra := &n
	if n.ID != 0 {
		extra = nil // it is among the nodes already
	}
	made := a.compile(extra)
	if prefix, ok := made.Over[n.RuleSet]; ok {
		return &api.Error{
			Code:    api.CodeConflict,
			Message: fmt.Sprintf("more than %d limits and rules would be for %v, each range of ports counted", enforce.MostDestinationRules, prefix),
			Hint:    "lift some first (netnice ls), or name smaller prefixes",
		}
	}
	own := 0
	for _, list := range made.Prefixes {
		if n.OnlyUser && list.Book == n.User {
			own++
		}
	}
	if own > rules.MaxUserDestinations {
		return request.Full("you name as many prefixes in", rules.MaxUserDestinations, "lift some first: netnice ls")
	}
	if len(made.Prefixes) > enforce.MostDestinationPrefixes {
		return request.Full("as many prefixes are named in", enforce.MostDestinationPrefixes, "lift some first: netnice ls")
	}
	return nil
}
