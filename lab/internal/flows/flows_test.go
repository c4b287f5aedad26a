package flows_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/capture"
	"github.com/netnice/netnice/lab/internal/chart"
	"github.com/netnice/netnice/lab/internal/flows"
)

func TestFlows(t *testing.T) {
	const second = testbed.Instant(time.Second)
	f := flows.Of([]capture.Packet{
		{T: second, From: 1, Bytes: 1000},
		{T: second, From: 2, Bytes: 3000},
		{T: 2 * second, From: 2, Bytes: 5000},
		{T: 2 * second, From: 3, Bytes: 7000}, // a port outside of the list
		{T: 3 * second, From: 1, Bytes: 9000}, // too late
	}, []uint16{1, 2}, second, 3*second)
	want := flows.Flows{Each: [][]float64{{1000, 0}, {3000, 5000}}, Sum: []float64{4000, 12000}}
	if !reflect.DeepEqual(f, want) {
		t.Errorf("%v, want %v", f, want)
	}
	if got := f.Means(); !reflect.DeepEqual(got, []float64{500, 4000}) {
		t.Errorf("means %v", got)
	}
	curves := []chart.Curve{
		{Name: "sum", Points: []chart.XY{{X: 0.5, Y: 4}, {X: 1.5, Y: 5}}},
		{Name: "socket 1", Points: []chart.XY{{X: 0.5, Y: 1}, {X: 1.5, Y: 0}}},
		{Name: "socket 2", Points: []chart.XY{{X: 0.5, Y: 3}, {X: 1.5, Y: 5}}},
	}
	if got := f.Curves("socket"); !reflect.DeepEqual(got, curves) {
		t.Errorf("curves %v", got)
	}
}
