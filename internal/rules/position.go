package rules

import "github.com/pelletier/go-toml/v2/unstable"

// position is a position in a file; both numbers count from 1.
type position struct{ line, column int }

// positions holds the positions of the keys of a document.
type positions struct {
	keys  map[string]position // top-level keys
	rules []map[string]position
}

// of returns the position of a rule's key, or of the rule if the rule does not have the key.
func (p positions) of(rule int, key string) position {
	if rule < len(p.rules) {
		if at, ok := p.rules[rule][key]; ok {
			return at
		}
		return p.rules[rule][""]
	}
	return p.top("rule") // the rules are an inline array
}

func (p positions) top(key string) position {
	if at, ok := p.keys[key]; ok {
		return at
	}
	return position{1, 1}
}

// locate finds the keys of a document that is valid TOML.
func locate(text []byte) positions {
	out := positions{keys: map[string]position{}}
	var at map[string]position // keys of the current table; nil = the document
	inside := ""
	var p unstable.Parser
	p.Reset(text)
	for p.NextExpression() {
		node := p.Expression()
		keys := node.Key()
		if !keys.Next() {
			continue
		}
		first := keys.Node()
		begin := p.Shape(first.Raw).Start
		where := position{begin.Line, begin.Column}
		name := string(first.Data)
		nested := keys.Next()
		switch node.Kind {
		case unstable.ArrayTable, unstable.Table:
			inside = name
			if _, there := out.keys[name]; !there {
				out.keys[name] = where
			}
			switch {
			case name == "rule" && !nested && node.Kind == unstable.ArrayTable:
				at = map[string]position{"": where}
				out.rules = append(out.rules, at)
			case name == "rule" && nested && len(out.rules) > 0:
				// [rule.x] is a key x of the last rule
				sub := string(keys.Node().Data)
				last := out.rules[len(out.rules)-1]
				if _, there := last[sub]; !there {
					last[sub] = where
				}
				at = nil
			default:
				at = nil
			}
		case unstable.KeyValue:
			switch {
			case at != nil:
				if _, there := at[name]; !there {
					at[name] = where
				}
			case inside == "":
				if _, there := out.keys[name]; !there {
					out.keys[name] = where
				}
			}
		}
	}
	return out
}
