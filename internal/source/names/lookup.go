package names

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/destination"
)

const (
	// patience bounds the duration of one lookup.
	patience = 5 * time.Second
	// mostNames bounds the names of one limit. mostAddresses bounds the addresses of one name.
	mostNames, mostAddresses = 16, 64
)

// lookUp looks a name up once. It returns the addresses in ascending order, so that two answers can be compared.
func (s *Source) lookUp(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list, err := s.opts.LookUp(ctx, name)
	if err != nil {
		return nil, err
	}
	for i, a := range list {
		list[i] = a.Unmap().WithZone("")
	}
	slices.SortFunc(list, netip.Addr.Compare)
	list = slices.Compact(list)
	switch {
	case len(list) == 0:
		return nil, fmt.Errorf("%s has no address", name)
	case len(list) > mostAddresses:
		return nil, fmt.Errorf("%s has %d addresses, more than the %d that a limit follows", name, len(list), mostAddresses)
	}
	return list, nil
}

// LookUp looks up the names of one limit. The caller does not hold the lock of the limits. The source does not remember
// the answers, until Learn.
func (s *Source) LookUp(ctx context.Context, names []string) (map[string]Answer, error) {
	if len(names) > mostNames {
		return nil, destination.Refused("%d names: one limit may have %d", len(names), mostNames)
	}
	list := map[string]Answer{}
	for _, name := range names {
		addresses, err := s.lookUp(ctx, name)
		if err != nil {
			return nil, &api.Error{
				Code: api.CodeNotFound, Message: fmt.Sprintf("the name %s is not found: %v", name, err),
				Hint: "getent ahosts " + name + "; or name addresses: --to 192.0.2.7", Cause: err,
			}
		}
		list[name] = Answer{Addresses: addresses}
	}
	return list, nil
}

// LookUpNew is LookUp without the names that have addresses already.
func (s *Source) LookUpNew(ctx context.Context, names []string) (map[string]Answer, error) {
	var unknown []string
	s.opts.Host.Read(func() {
		for _, name := range names {
			if len(s.answers[name].Addresses) == 0 {
				unknown = append(unknown, name)
			}
		}
	})
	return s.LookUp(ctx, unknown)
}
