package metrics

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
)

// busy is a daemon with something of everything.
type busy struct{}

func (busy) Status(context.Context) (*api.Status, error) {
	return &api.Status{
		Release: "test", Kernel: "6.18", Programs: []api.Program{{Name: "egress", Attached: true}},
		Counters: map[string]uint64{"event_lost": 1},
	}, nil
}

func (busy) Nodes(context.Context) (*api.NodeList, error) {
	return &api.NodeList{Nodes: []api.Node{{
		Subject: api.Subject{Kind: api.KindHost}, Name: "host", Total: &api.TotalUsage{Bytes: 1},
		Limits: []api.Limit{{Owner: api.OwnerAdmin, Direction: api.Up, BytesPerSec: 1, Enforced: true}},
	}}}, nil
}

// Every figure of the table is given, with its type, help and labels, and no other is.
func TestFigures(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(busy{}))
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, len(Figures()))
	byName := make(map[string]*Figure)
	for _, f := range Figures() {
		byName[f.Name] = f
	}
	for _, family := range families {
		f := byName[family.GetName()]
		require.NotNil(t, f, family.GetName())
		require.Equal(t, f.Help, family.GetHelp())
		kind := "GAUGE"
		if f.IsCounter {
			kind = "COUNTER"
			require.Regexp(t, "_total$", f.Name)
		}
		require.Equal(t, kind, family.GetType().String(), f.Name)
		var labels []string
		for _, l := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		require.ElementsMatch(t, f.Labels, labels, f.Name)
	}
}

// Every label has a meaning, and every meaning belongs to a label.
func TestLabels(t *testing.T) {
	used, known := make(map[string]bool), make(map[string]bool)
	for _, f := range Figures() {
		for _, l := range f.Labels {
			used[l] = true
		}
	}
	for _, l := range Labels() {
		known[l.Name] = true
		require.NotEmpty(t, l.Means)
	}
	require.Equal(t, used, known)
}
