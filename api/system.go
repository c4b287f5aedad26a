package api

// SystemRequest is the body of PUT /v1/system: what is to hold for the whole machine.
// Administrators only; what is left out stays as it is.
type SystemRequest struct {
	// InputMeter: what is received counts in the totals of limits. False: it counts in none, as
	// if each had been set with InputMeter false, whatever they say themselves.
	InputMeter *bool `json:"input_meter,omitempty"`
	DryRun     bool  `json:"dry_run,omitempty"`
}

// System is what holds for the whole machine. It answers GET and PUT /v1/system.
type System struct {
	Version    string `json:"version"`
	InputMeter bool   `json:"input_meter"`
	Changed    bool   `json:"changed,omitempty"`
	// Warnings: such as that it could not be written down.
	Warnings []string `json:"warnings,omitempty"`
}
