package doctor

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/netnice/netnice/api"
)

// Installation describes the files and devices of netnice on this machine.
type Installation struct {
	State     error    // why a daemon would not use the state as it is, nil = it would; fs.ErrPermission: it is unknown
	Damaged   []string // files of the state that were damaged, and are kept
	Unused    []string // devices without a use
	UnusedErr error    // why these could not be looked for; fs.ErrPermission: the caller may not
}

// Installed judges an installation. It is a pure function.
func Installed(i Installation) []api.Check {
	return []api.Check{stateFiles(i), devices(i)}
}

// stateFiles checks whether the next daemon would find the desired state.
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

// devices checks whether a netnice that has ended left devices behind.
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
