package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
)

// release is that of this source.
const release = "0.1.0"

// Release returns the version of this build: the release, and the revision of
// the source where Go knows it ("0.1.0+db1f10a").
func Release() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return release
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 7:
			revision = "+" + s.Value[:7]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = ".modified"
		}
	}
	if revision == "" {
		return release
	}
	return release + revision + dirty
}

// versionAnswer is what `netnice version --json` prints.
type versionAnswer struct {
	Version string `json:"version"` // of the API
	Release string `json:"release"`
	Go      string `json:"go"`
	Target  string `json:"target"`
}

func (a *App) version() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  between(0, 0),
		RunE: func(*cobra.Command, []string) error {
			v := versionAnswer{Version: api.Version, Release: a.Release, Go: runtime.Version(), Target: runtime.GOOS + "/" + runtime.GOARCH}
			if asJSON {
				return writeJSON(a.Out, v)
			}
			fmt.Fprintf(a.Out, "netnice %s, API %s (%s, %s)\n", v.Release, v.Version, v.Go, v.Target)
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
