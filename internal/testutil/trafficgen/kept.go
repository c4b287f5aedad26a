package trafficgen

import (
	"embed"
	"encoding/json"
	"fmt"
	"strings"
)

//go:embed kept/*.json
var keptFiles embed.FS

// Kept returns the programs that once failed TestGenerated, by name. Dimensions without a choice have their first
// choice.
func Kept() (map[string]Program, error) {
	files, err := keptFiles.ReadDir("kept")
	if err != nil {
		return nil, err
	}
	all := map[string]Program{}
	for _, file := range files {
		text, err := keptFiles.ReadFile("kept/" + file.Name())
		if err != nil {
			return nil, err
		}
		p, err := Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name(), err)
		}
		all[strings.TrimSuffix(file.Name(), ".json")] = p
	}
	return all, nil
}

// Parse reads a program from JSON. Dimensions without a choice have their first choice.
func Parse(text []byte) (p Program, err error) {
	if err := json.Unmarshal(text, &p); err != nil {
		return p, err
	}
	if p.Limit == nil {
		p.Limit = Traits{}
	}
	limits, each := p.dimensions()
	p.Limit.complete(limits)
	for _, s := range p.Senders {
		s.complete(each)
	}
	if !p.valid() {
		return p, fmt.Errorf("%v does not fit together", p)
	}
	return p, nil
}

func (t Traits) complete(all []dimension) {
	for _, d := range all {
		if _, said := t[d.name]; !said {
			t[d.name] = d.choices[0].value
		}
	}
}
