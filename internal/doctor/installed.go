package doctor

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/netnice/netnice/api"
)

// Installation is what netnice has on this machine, as somebody has found it.
type Installation struct {
	State     error    // why the state would not be used as it is, nil = it would; fs.ErrPermission: nobody could look
	Damaged   []string // files of the state that were found damaged, and are kept
	Unused    []string // devices that nobody uses any more
	UnusedErr error    // why nobody could look for them; fs.ErrPermission as above
}

// Installed judges that. It is a pure function.
func Installed(i Installation) []api.Check {
	return []api.Check{stateFiles(i), devices(i)}
}

// stateFiles: whether the next daemon would find what is wanted.
func stateFiles(i Installation) api.Check {
	const name = "state"
	switch {
	case errors.Is(i.State, fs.ErrPermission):
		return unknown(name)
	case i.State != nil:
		check := api.Check{
			Name: name, State: Degraded, Found: firstLine(i.State),
			Means:  "Limits in force stay. A daemon that starts keeps a damaged file aside and adopts what is in force; one that others may have written it refuses.",
			Remedy: "netnice ls shows what is in force",
		}
		var known *api.Error
		if errors.As(i.State, &known) {
			check.Found, check.Remedy = known.Message, known.Hint
		}
		return check
	case len(i.Damaged) > 0:
		return api.Check{
			Name: name, State: Degraded, Found: "a file was damaged, and is kept: " + strings.Join(i.Damaged, ", "),
			Means:  "What was wanted may be missing, or older than what was wanted last; netnice status says of each file what.",
			Remedy: "compare each with what netnice ls, power, adapt or system shows, set what is missing, then: sudo rm " + strings.Join(i.Damaged, " "),
		}
	}
	return api.Check{Name: name, State: OK, Found: "whole, or there is none"}
}

// devices: whether any are left of a netnice that has gone.
func devices(i Installation) api.Check {
	const name = "devices"
	switch {
	case errors.Is(i.UnusedErr, fs.ErrPermission):
		return unknown(name)
	case len(i.Unused) > 0:
		return api.Check{
			Name: name, State: Degraded, Found: strings.Join(i.Unused, ", ") + " are left of an earlier daemon, and nobody uses them",
			Means:  "They do nothing. A daemon makes others beside them.",
			Remedy: "sudo netnice down",
		}
	case i.UnusedErr != nil:
		return api.Check{Name: name, State: Degraded, Found: "could not be looked at: " + firstLine(i.UnusedErr), Remedy: "ip -d link show type veth"}
	}
	return api.Check{Name: name, State: OK, Found: "none of netnice's that nobody uses"}
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
