package api

// SystemRequest is the body of PUT /v1/system: settings for the whole machine. Administrators only; a missing field
// changes nothing.
type SystemRequest struct {
	// InputMeter says whether received bytes count in the totals of limits. False: they count in none, as if each limit
	// had been set with InputMeter false. It overrides the setting of each limit.
	InputMeter *bool `json:"input_meter,omitempty"`
	DryRun     bool  `json:"dry_run,omitempty"` // asks what would change, and changes nothing
}

// System has the settings of the whole machine. It answers GET and PUT /v1/system.
type System struct {
	Version    string `json:"version"`           // the version of the API
	InputMeter bool   `json:"input_meter"`       // whether received bytes count in the totals of limits
	Changed    bool   `json:"changed,omitempty"` // whether the request has changed something, or would change it
	// Warnings are, for instance, that the setting could not be written.
	Warnings []string `json:"warnings,omitempty"`
}

// DownResponse answers POST /v1/down.
type DownResponse struct {
	Version string `json:"version"` // the version of the API
}
