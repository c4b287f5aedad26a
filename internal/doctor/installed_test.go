package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
)

func TestInstalled(t *testing.T) {
	for name, c := range map[string]struct {
		found        Installation
		check, state string
		text, remedy string
	}{
		"nothing": {check: "state", state: OK, text: "whole"},
		"no rights": {
			found: Installation{State: fmt.Errorf("open it: %w", fs.ErrPermission)},
			check: "state", state: Degraded, text: notLooked, remedy: "sudo netnice doctor",
		},
		"others may write": {
			found: Installation{State: &api.Error{Message: "/x/state.json is not used: it belongs to bob", Hint: "sudo chown root:root /x/state.json"}},
			check: "state", state: Degraded, text: "belongs to bob", remedy: "sudo chown root:root /x/state.json",
		},
		"cut": {
			found: Installation{State: errors.New("/x/state.json is damaged: it was cut")},
			check: "state", state: Degraded, text: "it was cut", remedy: "netnice ls",
		},
		"kept": {
			found: Installation{Damaged: []string{"/x/state.json.damaged-1"}},
			check: "state", state: Degraded, text: "/x/state.json.damaged-1", remedy: "sudo rm /x/state.json.damaged-1",
		},
		"devices": {
			found: Installation{Unused: []string{"netnice0q", "netnice0r"}},
			check: "devices", state: Degraded, text: "netnice0q, netnice0r", remedy: "sudo netnice down",
		},
		"devices, no rights": {
			found: Installation{UnusedErr: fs.ErrPermission},
			check: "devices", state: Degraded, text: notLooked, remedy: "sudo netnice doctor",
		},
		"devices, not listed": {
			found: Installation{UnusedErr: errors.New("list devices: broken")},
			check: "devices", state: Degraded, text: "broken", remedy: "ip -d link",
		},
	} {
		t.Run(name, func(t *testing.T) {
			checks := Installed(c.found)
			require.Len(t, checks, 2)
			for _, check := range checks {
				if check.Name != c.check {
					require.Equal(t, OK, check.State, check.Name)
					continue
				}
				require.Equal(t, c.state, check.State)
				require.Contains(t, check.Found, c.text)
				require.Contains(t, check.Remedy, c.remedy)
			}
			var out bytes.Buffer
			require.NoError(t, Render(&out, api.Report{Checks: checks}, Look{}))
			require.Contains(t, out.String(), c.text)
		})
	}
}
