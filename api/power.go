package api

import "time"

// Power is the CPU share of a process and its descendants.
type Power struct {
	PID   int       `json:"pid"`            // the process
	Name  string    `json:"name"`           // its command
	UID   uint32    `json:"uid"`            // the user id of its process
	Since time.Time `json:"since,omitzero"` // when the process received the share
	// Power is the share. A value from 1 on is the most that they get, in per cent of one processor. Values above 100
	// span several processors. A value from -255 to -1 is a priority below the ordinary one, which is 0.
	Power int `json:"power"`
	// Guaranteed reports whether they get the share whatever others want.
	Guaranteed bool `json:"guaranteed,omitempty"`
	// SliceNS of processor time in each PeriodNS is the share in force: it implements Power, or it is the reservation
	// (Reserved). 0 = no ceiling.
	PeriodNS uint64 `json:"period_ns,omitempty"`
	SliceNS  uint64 `json:"slice_ns,omitempty"`
	Reserved bool   `json:"reserved,omitempty"`
	// Extra reports that SliceNS in each PeriodNS is the least that they get, and that they compete for more as others
	// do.
	Extra bool `json:"extra,omitempty"`
	// SlotNS is how long they run, or pause, at a time; the actual times may be a multiple of it. 0 = the kernel's
	// ceiling decides.
	SlotNS uint64 `json:"slot_ns,omitempty"`
	// Strict reports that the deadline scheduler is requested. Deadline reports that it is in use, because the process
	// has one thread. NoDeadline says why it is not in use; the daemon checks that again each second.
	Strict     bool   `json:"strict,omitempty"`
	Deadline   bool   `json:"deadline,omitempty"`
	NoDeadline string `json:"no_deadline,omitempty"`
	// Auto says how the slice was computed; nil if a request named it.
	Auto *PowerAuto `json:"auto,omitempty"`
	// Owners are those who have requested it: "admin", or the name of a user.
	Owners []string `json:"owners"`
	// Percent is their use of one processor over the last second.
	Percent   float64 `json:"percent"`
	Processes int     `json:"processes"` // the number of processes that have the share together
	Group     string  `json:"group"`     // where the processes are: a cgroup folder, or systemd's scope
}

// PowerAuto is a CPU reservation that is computed from the rate that a program is to send at.
type PowerAuto struct {
	RateBytesPerSec uint64 `json:"rate_bytes_per_sec"` // the rate that the program is to send at, in IP bytes
	// PercentPerMbit is the measured cost: per cent of a processor for each Mbit/s. It comes from MeasuredPercent, the
	// use while the program sent MeasuredBytesPerSec. 0 = not measured yet.
	PercentPerMbit      float64 `json:"percent_per_mbit"`
	MeasuredBytesPerSec uint64  `json:"measured_bytes_per_sec"`
	MeasuredPercent     float64 `json:"measured_percent"`
	Short               bool    `json:"short,omitempty"` // whether it needs more processor time than is left
	Margin              float64 `json:"margin"`          // the factor by which the reservation exceeds the measured need
}

// PowerRequest is the body of PUT /v1/power: it asks for a Power, or for a reservation.
type PowerRequest struct {
	PID int `json:"pid"` // the process
	// Power has the values of type Power. 0 removes the caller's own share; for an administrator it removes
	// everybody's.
	Power int `json:"power"`
	// PeriodNS and SliceNS reserve SliceNS of processor time in each PeriodNS: guaranteed, and no more. Administrators
	// only.
	PeriodNS uint64 `json:"period_ns,omitempty"`
	SliceNS  uint64 `json:"slice_ns,omitempty"`
	// Extra lets a reservation compete for more than the slice, as others do.
	Extra bool `json:"extra,omitempty"`
	// SlotNS, 1 to 10 ms, makes a Power of 1 to 100 run in slots of that length. Strict asks for the kernel's deadline
	// scheduler, which is used where it fits: for a process of one thread. Administrators only.
	SlotNS uint64 `json:"slot_ns,omitempty"`
	Strict bool   `json:"strict,omitempty"`
	// AutoBytesPerSec asks for a reservation that suffices to send at this rate. The daemon measures the need and
	// corrects the reservation.
	AutoBytesPerSec uint64 `json:"auto_bytes_per_sec,omitempty"`
	DryRun          bool   `json:"dry_run,omitempty"` // asks what would change, and changes nothing
}

// PowerResponse answers PUT /v1/power.
type PowerResponse struct {
	Version  string   `json:"version"`            // the version of the API
	Power    *Power   `json:"power,omitempty"`    // the share that is left; nil = no share is left
	Changed  bool     `json:"changed"`            // whether the request has changed something, or would change it
	Warnings []string `json:"warnings,omitempty"` // effects that the caller may not expect
}

// PowerList answers GET /v1/power.
type PowerList struct {
	Version string    `json:"version"`       // the version of the API
	Time    time.Time `json:"time,omitzero"` // when the answer was made
	Powers  []Power   `json:"powers"`        // the shares
	// GuaranteedPercent is the sum of the guarantees, in per cent of one processor; CapacityPercent is the machine's
	// total.
	GuaranteedPercent float64 `json:"guaranteed_percent"`
	CapacityPercent   float64 `json:"capacity_percent"`
}
