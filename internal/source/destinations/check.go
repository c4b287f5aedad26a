package destinations

import (
	"net/netip"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
)

// parsePrefixes reads the prefixes of a request.
func parsePrefixes(texts []string) ([]netip.Prefix, error) {
	if len(texts) > enforce.MostDestinationPrefixes {
		return nil, destination.Refused("%d prefixes: there may be %d in all", len(texts), enforce.MostDestinationPrefixes)
	}
	list := make([]netip.Prefix, 0, len(texts))
	for i, text := range texts {
		p, err := destination.ParsePrefix(text)
		if err != nil {
			return nil, destination.Refused("prefix %d: %v", i+1, err)
		}
		list = append(list, p)
	}
	return destination.Tidy(list), nil
}

// checkSet refuses settings that a part of the traffic cannot have.
func checkSet(req api.SetRequest) error {
	switch {
	case req.Scope:
		return destination.Refused("a part of the traffic has no scope: name the cgroup, or leave --scope out")
	case limit.WholeOnly(req.Wish):
		return destination.Refused("guarantees, reservations, weights and marks have no meaning for a part of the traffic: give rates")
	}
	return nil
}
