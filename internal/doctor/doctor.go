// Package doctor says in plain words what this machine offers to netnice, what
// is missing, what follows from that, and what to do about it. It judges what
// package kernelfeatures found; it changes nothing.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/kernelfeatures"
)

// The states of a check.
const (
	OK       = "ok"       // nothing is missing
	Degraded = "degraded" // netnice works, with the limits that Means names, or the check could not be made
	Missing  = "missing"  // netnice does not work here until the remedy has been applied
)

// Run looks at the machine and reports. It takes well under a second and leaves
// no trace. Without root much of the report is "could not be looked for".
func Run(ctx context.Context) api.Report {
	return Examine(kernelfeatures.Probe(ctx))
}

// Examine judges the features that were found. It is a pure function.
func Examine(f *kernelfeatures.Features) api.Report {
	report := api.Report{Version: api.Version, Kernel: f.Release}
	for _, check := range checks() {
		report.Checks = append(report.Checks, check(f))
	}
	return report
}

// checks lists the judgements in the order of the report. The first are those on which all others depend.
func checks() []func(*kernelfeatures.Features) api.Check {
	return []func(*kernelfeatures.Features) api.Check{
		privileges, kernelTypes, programs, bpfFileSystem, cgroups, wholeMachine,
		pacing, whoSends, newSockets, children, running, openConnections, socketOption,
		congestion, systemd, processors, packetSockets,
	}
}

// part is a feature under the name that a report gives it.
type part struct {
	name    string
	feature kernelfeatures.Feature
}

// gaps are the parts that are not there.
type gaps struct {
	absent  []string // parts that the machine lacks
	unknown []string // parts that could not be looked for
	reasons []string // the kernel's answers that say more than "no"
	since   string   // the first kernel release that has all absent parts; "" if age is not the reason
}

func look(parts ...part) gaps {
	var g gaps
	for _, p := range parts {
		switch {
		case p.feature.Have:
		case p.feature.Unknown():
			g.unknown = append(g.unknown, p.name)
		default:
			g.absent = append(g.absent, p.name)
			if !errors.Is(p.feature.Err, kernelfeatures.ErrAbsent) && p.feature.Err != nil {
				g.reasons = append(g.reasons, fmt.Sprintf("%s: %v", p.name, p.feature.Err))
			}
			if newer(p.feature.MinKernel, g.since) {
				g.since = p.feature.MinKernel
			}
		}
	}
	return g
}

// newer compares releases such as "6.12" and "6.2".
func newer(a, b string) bool {
	aMajor, aMinor := release(a)
	bMajor, bMinor := release(b)
	return aMajor > bMajor || aMajor == bMajor && aMinor > bMinor
}

// release reads the two leading numbers of a kernel's release.
func release(text string) (major, minor int) {
	first, rest, _ := strings.Cut(text, ".")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	major, _ = strconv.Atoi(first)
	minor, _ = strconv.Atoi(rest[:end])
	return major, minor
}

// needs makes a check of parts that are all needed.
func needs(name, found, means string, f *kernelfeatures.Features, parts ...part) api.Check {
	g := look(parts...)
	switch {
	case len(g.absent) > 0:
		return api.Check{
			Name: name, State: Missing,
			Found:  "not there: " + strings.Join(append(g.absent, g.reasons...), ", "),
			Means:  means,
			Remedy: g.remedy(f),
		}
	case len(g.unknown) > 0:
		return unknown(name)
	}
	return api.Check{Name: name, State: OK, Found: found}
}

// either makes a check of one part, which is there, as the text found says, or missing.
func either(feature kernelfeatures.Feature, found string, lacking api.Check) api.Check {
	switch {
	case feature.Have:
		return api.Check{Name: lacking.Name, State: OK, Found: found}
	case feature.Unknown():
		return unknown(lacking.Name)
	}
	return lacking
}

// better makes a check that is OK unless a part is missing with which netnice works better.
func better(check api.Check, with kernelfeatures.Feature, lacking api.Check) api.Check {
	if check.State != OK {
		return check
	}
	lacking.Name = check.Name
	return either(with, check.Found, lacking)
}

// remedy names the kernel that has the absent parts.
func (g gaps) remedy(f *kernelfeatures.Features) string {
	if newer(g.since, f.Release) {
		return "run Linux " + g.since + " or newer (tried on " + triedOn + ")"
	}
	return "this kernel is new enough but was built, or is locked, without it: run a distribution's stock kernel (tried on " + triedOn + ")"
}

// triedOn are kernels on which netnice has been run, as in docs/reference/kernels.md.
const triedOn = "Debian 12's 6.1 and 6.12"

// notLooked is the finding of a check that could not be made.
const notLooked = "could not be looked for without root"

func unknown(name string) api.Check {
	return api.Check{
		Name: name, State: Degraded,
		Found:  notLooked,
		Remedy: "sudo netnice doctor",
	}
}
