package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
)

// linkedRelease is the release that the Makefile gives to the linker. It is that of the tag, and of the commits since
// the tag; "" if the program was built by go build alone.
var linkedRelease string

// Release returns the version of this build: the one that the linker was given, or else the one that Go knows of the
// source.
func Release() string {
	if linkedRelease != "" {
		return linkedRelease
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknownRelease
	}
	return builtRelease(info)
}

// unknownRelease is the release of a build without a known version.
const unknownRelease = "devel"

// builtRelease returns the version of the module. go install and go build take it from a tag, or make it of the commit.
// Without a version it returns the revision of the source ("devel+db1f10a").
func builtRelease(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return strings.TrimPrefix(v, "v")
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
		return unknownRelease
	}
	return unknownRelease + revision + dirty
}

// versionAnswer is the output of `netnice version --json`.
type versionAnswer struct {
	Version string `json:"version"` // version of the API
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
