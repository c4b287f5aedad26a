package chart_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/netnice/netnice/lab/internal/chart"
)

func TestSave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.svg")
	c := chart.Chart{
		Title: "rate", X: "s", Y: "MB/s",
		Curves: []chart.Curve{
			{Name: "line", Points: []chart.XY{{X: 0, Y: 1}, {X: 1, Y: 2}}},
			{Name: "dots", Points: []chart.XY{{X: 0, Y: 2}}, Dots: true},
			{Name: "empty"},
		},
		Levels: map[string]float64{"limit": 3},
	}
	for _, c.LogY = range []bool{false, true} {
		if err := c.Save(path); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, []byte("<svg")) || !bytes.Contains(text, []byte("limit")) {
			t.Errorf("no chart in\n%.300s", text)
		}
	}
}
