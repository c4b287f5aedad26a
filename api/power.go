package api

import "time"

// Power is what a process and its descendants get of the processors.
type Power struct {
	PID   int       `json:"pid"`
	Name  string    `json:"name"` // its command
	UID   uint32    `json:"uid"`  // whose process it is
	Since time.Time `json:"since,omitzero"`
	// Power: from 1 on so many per cent of one processor at most, beyond 100 on more than one;
	// -255 to -1 a priority below the ordinary, which is 0.
	Power int `json:"power"`
	// Guaranteed: they get it whatever others want.
	Guaranteed bool `json:"guaranteed,omitempty"`
	// SliceNS of processor time in each PeriodNS is what holds: how Power is kept, or what was
	// reserved (Reserved); 0 = no ceiling.
	PeriodNS uint64 `json:"period_ns,omitempty"`
	SliceNS  uint64 `json:"slice_ns,omitempty"`
	Reserved bool   `json:"reserved,omitempty"`
	// Extra: SliceNS in each PeriodNS is what they have at least; of the rest an ordinary share.
	Extra bool `json:"extra,omitempty"`
	// SlotNS: they run, and stand still, for so long at a time, or a multiple of it; 0 = as the
	// kernel's ceiling has it.
	SlotNS uint64 `json:"slot_ns,omitempty"`
	// Strict: the deadline scheduler is to keep it; Deadline: it does, for there is one thread;
	// NoDeadline: why it does not, which is looked at again each second.
	Strict     bool   `json:"strict,omitempty"`
	Deadline   bool   `json:"deadline,omitempty"`
	NoDeadline string `json:"no_deadline,omitempty"`
	// Auto is how the slice was found; nil if it was said.
	Auto *PowerAuto `json:"auto,omitempty"`
	// Owners are whose wish it is: "admin", or the name of the user who set it.
	Owners []string `json:"owners"`
	// Percent of one processor that they had over the last second.
	Percent   float64 `json:"percent"`
	Processes int     `json:"processes"`
	Group     string  `json:"group"` // where they are: a folder, or systemd's scope
}

// PowerAuto is a reservation of the processors for what a program is to send.
type PowerAuto struct {
	RateBytesPerSec uint64 `json:"rate_bytes_per_sec"` // IP bytes
	// PercentPerMbit of a processor were measured for each Mbit/s, as it sent MeasuredBytesPerSec by
	// MeasuredPercent; 0 = nothing was measured yet.
	PercentPerMbit      float64 `json:"percent_per_mbit"`
	MeasuredBytesPerSec uint64  `json:"measured_bytes_per_sec"`
	MeasuredPercent     float64 `json:"measured_percent"`
	Short               bool    `json:"short,omitempty"` // it needs more, and that is not left
	Margin              float64 `json:"margin"`          // so many times what was measured is reserved
}

// PowerRequest is the body of PUT /v1/power: Power, or a reservation.
type PowerRequest struct {
	PID int `json:"pid"`
	// Power as in type Power; 0 takes back what the caller set, an administrator what anybody set.
	Power int `json:"power"`
	// Reserve is SliceNS of processor time in each PeriodNS, guaranteed, and no more;
	// administrators only.
	PeriodNS uint64 `json:"period_ns,omitempty"`
	SliceNS  uint64 `json:"slice_ns,omitempty"`
	// Extra with a reservation: of the rest an ordinary share, instead of no more.
	Extra bool `json:"extra,omitempty"`
	// SlotNS, 1 to 10 ms, with a Power of 1 to 100: in slots of that length. Strict: by the kernel's
	// deadline scheduler where that fits, a process of one thread. Administrators only.
	SlotNS uint64 `json:"slot_ns,omitempty"`
	Strict bool   `json:"strict,omitempty"`
	// AutoBytesPerSec instead: as much as it needs to send so much, which is measured and corrected.
	AutoBytesPerSec uint64 `json:"auto_bytes_per_sec,omitempty"`
	DryRun          bool   `json:"dry_run,omitempty"`
}

// PowerResponse answers it.
type PowerResponse struct {
	Version  string   `json:"version"`
	Power    *Power   `json:"power,omitempty"` // nil: nothing stands any more
	Changed  bool     `json:"changed"`
	Warnings []string `json:"warnings,omitempty"`
}

// PowerList answers GET /v1/power.
type PowerList struct {
	Version string    `json:"version"`
	Time    time.Time `json:"time,omitzero"`
	Powers  []Power   `json:"powers"`
	// GuaranteedPercent of one processor are promised, of CapacityPercent that the machine has.
	GuaranteedPercent float64 `json:"guaranteed_percent"`
	CapacityPercent   float64 `json:"capacity_percent"`
}
