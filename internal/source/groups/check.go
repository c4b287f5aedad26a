package groups

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/request"
)

var groupName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// checkSet refuses names that no group can have, and settings that it cannot have.
func checkSet(req api.SetRequest) error {
	if !groupName.MatchString(req.Subject.ID) {
		return Bad("%q is no name for a group: letters, digits, dots and dashes, at most 64", req.Subject.ID)
	}
	if req.Scope {
		return Bad("a group has no scope: name its processes")
	}
	return nil
}

// checkLeave refuses a request to leave a group that asks for something else, too.
func checkLeave(req api.SetRequest) error {
	switch {
	case req.Subject.Kind != api.KindGroup:
		return Bad("only a group can be left")
	case req.Wish != (api.Wish{}) || req.Scope:
		return Bad("leaving a group is one command, and setting a limit another")
	case len(req.Members) == 0:
		return Bad("no process given that is to leave")
	}
	for _, m := range req.Members {
		if m.Weight != 0 {
			return Bad("process %d: who leaves has no weight in the group", m.PID)
		}
	}
	return request.CheckSpan(req)
}

// fairCommand returns a command that makes a group of the members in a request.
func fairCommand(req api.SetRequest) string {
	words := []string{"netnice fair"}
	if len(req.Members) > 0 && req.Subject.ID != fmt.Sprintf("fair-%d", req.Members[0].PID) {
		words = append(words, "--group", req.Subject.ID)
	}
	rates := 0
	for _, r := range limit.Rates {
		if rate := r.Asked(&req.Wish); rate != nil && *rate != 0 && !r.Least {
			words = append(words, "--"+r.Name, auth.RateText(*rate))
			rates++
		}
	}
	if rates == 0 {
		words = append(words, "--total 10MB/s")
	}
	for _, m := range req.Members {
		word := strconv.Itoa(m.PID)
		if m.Weight != 0 {
			word += fmt.Sprintf("=%d", m.Weight)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// Bad is request.Bad for requests about groups.
func Bad(format string, args ...any) error {
	return request.Bad("netnice fair --help", format, args...)
}
