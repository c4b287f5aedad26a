package rules

import (
	"fmt"
	"slices"
	"strconv"
)

// text reads a key that is one text.
func (o object) text(key string) (string, bool) {
	value, there := o.keys[key]
	if !there {
		return "", false
	}
	text, ok := value.(string)
	if !ok {
		o.problem(key, fmt.Sprintf(`write it in quotes: %s = "..."`, key), "%s is %s, not a text", key, what(value))
	}
	return text, ok
}

// texts reads a key that is one text or a list of them.
func (o object) texts(key string) []string {
	value, there := o.keys[key]
	if !there {
		return nil
	}
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	var out []string
	for _, one := range list {
		switch v := one.(type) {
		case string:
			out = append(out, v)
		case int64:
			if key == "user" || key == "port" {
				out = append(out, strconv.FormatInt(v, 10))
				continue
			}
			o.problem(key, fmt.Sprintf(`write it in quotes: %s = "..."`, key), "%s is %s, not a text", key, what(v))
		default:
			o.problem(key, fmt.Sprintf(`%s = "one" or ["one", "another"]`, key), "%s is %s, neither a text nor a list of texts", key, what(v))
		}
	}
	if ok && len(list) == 0 {
		o.problem(key, "remove the line", "%s is an empty list, which nothing matches", key)
	}
	most := mostText
	if o.in.OfUser {
		most = MaxUserText
	}
	long := func(text string) bool { return len(text) > most }
	if slices.ContainsFunc(out, long) || len(out) > most {
		o.problem(key, "a shorter pattern, or fewer", "%s has more than %d bytes, or as many values", key, most)
		return nil
	}
	return out
}

func what(value any) string {
	switch value.(type) {
	case int64, float64:
		return "a number"
	case bool:
		return "true or false"
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	return "a date or time"
}
