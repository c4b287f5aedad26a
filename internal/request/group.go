package request

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/limit"
)

var groupName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckGroup refuses names that no group can have, and settings that it cannot have.
func CheckGroup(req api.SetRequest) error {
	if !groupName.MatchString(req.Subject.ID) {
		return BadGroup("%q is no name for a group: letters, digits, dots and dashes, at most 64", req.Subject.ID)
	}
	if req.Scope {
		return BadGroup("a group has no scope: name its processes")
	}
	return nil
}

// CheckLeave refuses a request to leave a group that asks for something else, too.
func CheckLeave(req api.SetRequest) error {
	switch {
	case req.Subject.Kind != api.KindGroup:
		return BadGroup("only a group can be left")
	case req.Wish != (api.Wish{}) || req.Scope:
		return BadGroup("leaving a group is one command, and setting a limit another")
	case len(req.Members) == 0:
		return BadGroup("no process given that is to leave")
	}
	for _, m := range req.Members {
		if m.Weight != 0 {
			return BadGroup("process %d: who leaves has no weight in the group", m.PID)
		}
	}
	return CheckSpan(req)
}

// FairCommand returns a command that makes a group of the members in a request.
func FairCommand(req api.SetRequest) string {
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

// BadGroup is Bad for requests about groups.
func BadGroup(format string, args ...any) error { return Bad("netnice fair --help", format, args...) }
