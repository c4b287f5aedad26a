package rules

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// anyContainer is the pattern that each container matches, also one without a name. "all" means the same.
const anyContainer = "*"

var (
	containerText = regexp.MustCompile(`^[a-zA-Z0-9*?\[][a-zA-Z0-9_.*?\[\]^-]*$`)
	// containerStart is the beginning of an id, as long as engines print it, or longer.
	containerStart = regexp.MustCompile(`^[0-9a-f]{12,64}$`)
)

// container is a container's name, a pattern for names, or the beginning of an id.
type container string

func newContainer(text string) (container, error) {
	if text == "all" {
		return anyContainer, nil
	}
	if !containerText.MatchString(text) {
		return "", fmt.Errorf("%q is no container's name", text)
	}
	if _, err := path.Match(text, ""); err != nil {
		return "", fmt.Errorf("the pattern %q is not complete: \\[ stands for the character itself", text)
	}
	return container(text), nil
}

func (c container) matches(is Container) bool {
	if c == anyContainer {
		return !is.IsZero()
	}
	named := slices.ContainsFunc(is.Names, func(name string) bool {
		ok, _ := path.Match(string(c), name)
		return ok
	})
	return named || containerStart.MatchString(string(c)) && strings.HasPrefix(is.ID, string(c))
}

// inContainers reads in which containers a process must be.
func (o object) inContainers(r *Rule, say func(string, []string)) {
	texts := o.texts("container")
	if o.in.OfUser && len(texts) > 0 {
		o.problem("container", "remove the line, and ask the administrator", "only the administrator's rules name containers, which are the machine's")
		return
	}
	for _, text := range texts {
		c, err := newContainer(text)
		if err != nil {
			o.problem("container", `container = "web" (a name), "web-*" (a pattern), the first 12 digits of an id, or "all"`, "%v", err)
			continue
		}
		r.containers = append(r.containers, c)
	}
	say("container", texts)
}
