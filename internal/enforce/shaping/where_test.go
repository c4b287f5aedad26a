package shaping

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/enforce"
)

// TestLinkNamespaces checks that a network namespace is listed once, however many of its devices are limited.
func TestLinkNamespaces(t *testing.T) {
	s := &shaper{nodes: map[uint32]*limited{}}
	limit := func(kind enforce.Kind, subject uint64) {
		id := uint32(len(s.nodes) + 1)
		s.nodes[id] = &limited{spec: enforce.NodeSpec{ID: id, Kind: kind, Subject: subject}}
	}
	for index := uint32(1); index <= 100; index++ {
		limit(enforce.KindLink, enforce.LinkSubject(7, index))
	}
	limit(enforce.KindLink, enforce.LinkSubject(8, 1))
	limit(enforce.KindUser, enforce.LinkSubject(9, 1))
	require.Equal(t, map[uint32]bool{7: true, 8: true}, s.linkNamespaces())
}
