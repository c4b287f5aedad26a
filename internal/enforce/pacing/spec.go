package pacing

import (
	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// nodeOf turns a node's desired state into the kernel's form.
func nodeOf(spec enforce.NodeSpec) bpf.Node {
	n := bpf.Node{
		Kind: uint32(spec.Kind), Flags: bpf.NodeLive, Subject: spec.Subject,
		StartBoottimeNs: spec.StartBoottimeNS, Weight: spec.Weight,
	}
	if n.Weight == 0 {
		n.Weight = enforce.DefaultWeight
	}
	if spec.Loopback {
		n.Flags |= bpf.NodeLoopback
	}
	if spec.MeterOff {
		n.Flags |= bpf.NodeMeterOff
	}
	if spec.Each {
		n.Flags |= bpf.NodeEach
	}
	if spec.Notes {
		n.Flags |= bpf.NodeNotes
	}
	if spec.Store != 0 {
		n.Flags |= bpf.NodeStored
		n.Parent = spec.Store
	}
	if spec.Own {
		n.Flags |= bpf.NodeOwn
	}
	n.Limits[enforce.OwnerAdmin][enforce.Up].MinBytesPerSec = spec.Guarantee
	n.Limits[enforce.OwnerAdmin][enforce.Down].MinBytesPerSec = spec.GuaranteeDown
	n.PeriodNs, n.SliceNs, n.Dscp = spec.PeriodNS, spec.SliceNS, uint32(spec.DSCP)
	n.LineOverhead, n.LineLeast = spec.Line.OverheadBytes, spec.Line.LeastBytes
	if spec.Line.Cells {
		n.LineCells = 1
	}
	if spec.Link != 0 {
		n.ScopeKind, n.ScopeId = bpf.KindLink, spec.Link
	}
	if spec.SliceOnly {
		n.Flags |= bpf.NodeSliceOnly
	}
	for o := range spec.Ceilings {
		for d, c := range spec.Ceilings[o] {
			l := &n.Limits[o][d]
			l.CeilingBytesPerSec, l.BurstBytes = c.BytesPerSec, burstBytes(c.BytesPerSec, c.BurstNS)
			if !c.Lapse.Set() {
				continue
			}
			n.Flags |= bpf.NodeLapses
			l.LapseBoottimeNs, l.LapseBytes, l.LapsedBytesPerSec = c.Lapse.BoottimeNS, c.Lapse.Bytes, c.Lapse.BytesPerSec
			if l.CeilingBytesPerSec == 0 {
				l.CeilingBytesPerSec, l.BurstBytes = enforce.Uncapped, uint64(1<<33)
			}
			if after := burstBytes(c.Lapse.BytesPerSec, c.BurstNS); after != 0 {
				l.BurstBytes = min(l.BurstBytes, after)
			}
		}
	}
	return n
}

// burstBytes returns the credit of a ceiling's burst time. It is at least one packet, and at most what the
// datapath's arithmetic can hold in 64 bits.
func burstBytes(bytesPerSec, ns uint64) uint64 {
	if bytesPerSec == 0 {
		return 0
	}
	if ns == 0 {
		ns = uint64(enforce.DefaultBurst)
	}
	const most = 1 << 33
	bytes := float64(bytesPerSec) * float64(ns) / 1e9
	switch {
	case bytes < 1500:
		return 1500
	case bytes > most:
		return most
	}
	return uint64(bytes)
}

// specOf is the inverse of nodeOf, for a daemon that adopts the nodes in force.
func specOf(id uint32, n bpf.Node) enforce.NodeSpec {
	s := enforce.NodeSpec{
		ID: id, Kind: enforce.Kind(n.Kind), Subject: n.Subject, StartBoottimeNS: n.StartBoottimeNs,
		Weight: n.Weight, Loopback: n.Flags&bpf.NodeLoopback != 0,
		MeterOff: n.Flags&bpf.NodeMeterOff != 0,
		Own:      n.Flags&bpf.NodeOwn != 0,
		Each:     n.Flags&bpf.NodeEach != 0,
		Notes:    n.Flags&bpf.NodeNotes != 0,

		Guarantee:     n.Limits[enforce.OwnerAdmin][enforce.Up].MinBytesPerSec,
		GuaranteeDown: n.Limits[enforce.OwnerAdmin][enforce.Down].MinBytesPerSec,
		DSCP:          uint8(n.Dscp),
		PeriodNS:      n.PeriodNs, SliceNS: n.SliceNs, Link: n.ScopeId, SliceOnly: n.Flags&bpf.NodeSliceOnly != 0,
	}
	s.Line = enforce.Line{OverheadBytes: n.LineOverhead, LeastBytes: n.LineLeast, Cells: n.LineCells != 0}
	if n.Kind == bpf.KindTree && n.Subject == 0 {
		s.Parent = n.Parent
	}
	if n.Flags&bpf.NodeStored != 0 {
		s.Store = n.Parent
	}
	for o := range s.Ceilings {
		for d := range s.Ceilings[o] {
			l := n.Limits[o][d]
			if l.CeilingBytesPerSec == 0 {
				continue
			}
			s.Ceilings[o][d] = enforce.Ceiling{
				BytesPerSec: l.CeilingBytesPerSec,
				BurstNS:     uint64(float64(l.BurstBytes) / float64(l.CeilingBytesPerSec) * 1e9),
				Lapse:       enforce.Lapse{BoottimeNS: l.LapseBoottimeNs, Bytes: l.LapseBytes, BytesPerSec: l.LapsedBytesPerSec},
			}
		}
	}
	return s
}
