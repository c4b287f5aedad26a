package api

// SystemRequest is the body of PUT /v1/system: settings for the whole machine. Administrators only; a missing field
// changes nothing.
type SystemRequest struct {
	// InputMeter says whether received bytes count in the totals of limits. False: they count in none, as if each limit
	// had been set with InputMeter false. It overrides the setting of each limit.
	InputMeter *bool `json:"input_meter,omitempty"`
	DryRun     bool  `json:"dry_run,omitempty"`
}

// System has the settings of the whole machine. It answers GET and PUT /v1/system.
type System struct {
	Version    string `json:"version"`
	InputMeter bool   `json:"input_meter"`
	Changed    bool   `json:"changed,omitempty"`
	// Warnings are, for instance, that the setting could not be written.
	Warnings []string `json:"warnings,omitempty"`
}
