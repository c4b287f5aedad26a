package cli

import (
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRelease(t *testing.T) {
	require.NotEmpty(t, Release(), "of the test's own build")
	linkedRelease = "0.2.0+14.g0c209cd"
	defer func() { linkedRelease = "" }()
	require.Equal(t, "0.2.0+14.g0c209cd", Release())
}

func TestBuiltRelease(t *testing.T) {
	settings := func(keysAndValues ...string) []debug.BuildSetting {
		var list []debug.BuildSetting
		for i := 0; i < len(keysAndValues); i += 2 {
			list = append(list, debug.BuildSetting{Key: keysAndValues[i], Value: keysAndValues[i+1]})
		}
		return list
	}
	for want, info := range map[string]debug.BuildInfo{
		"0.2.0":                  {Main: debug.Module{Version: "v0.2.0"}, Settings: settings("vcs.revision", "db1f10a55")},
		"devel":                  {Main: debug.Module{Version: "(devel)"}},
		"devel+db1f10a":          {Main: debug.Module{Version: "(devel)"}, Settings: settings("vcs.revision", "db1f10a55", "vcs.modified", "false")},
		"devel+db1f10a.modified": {Settings: settings("vcs.revision", "db1f10a55", "vcs.modified", "true")},
	} {
		require.Equal(t, want, builtRelease(&info))
	}
}

// The variable that the Makefile sets exists, and the version that it finds sorts as the versions of packages do.
func TestPackageVersion(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	require.Contains(t, string(makefile), "-X github.com/netnice/netnice/internal/cli.linkedRelease=$(VERSION)")
	out, err := exec.Command("../../contrib/package/version.sh").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Regexp(t, regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+([~+][0-9a-z.~+]+)?\n$`), string(out))

	version := strings.TrimSpace(string(out))
	out, err = exec.Command("../../contrib/package/changelog.sh", version, "1", "1790000000").CombinedOutput()
	require.NoError(t, err, string(out))
	first := regexp.MustCompile(`(?m)^- semver: (.*)$`).FindStringSubmatch(string(out))
	require.NotNil(t, first, string(out))
	require.Equal(t, version+"-1", first[1], "the newest entry of the changelog is the package's")
	out, err = exec.Command("../../contrib/package/changelog.sh", "99.0.0+3.gabcdef0", "0netnice1", "1790000000").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "- semver: 99.0.0+3.gabcdef0-0netnice1\n  date: 2026-09-21T14:13:20Z\n")
}
