package rules

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/pelletier/go-toml/v2"

	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/similar"
	"github.com/netnice/netnice/internal/units"
)

// Context is the context that decides the meaning of a file.
type Context struct {
	// OfUser marks a user's own file. Its rules hold only for this user's processes, and it may set only the limits
	// that a user may set.
	OfUser bool
	// LookupUser finds a user's id by name or number. Its error names the user that is not found. A user's own file
	// has no use for it.
	LookupUser func(name string) (uint32, error)
}

const (
	// MaxBytes bounds a file, and mostRules the rules in it. mostText bounds a text, and the number of texts in a list.
	MaxBytes  = 1 << 20
	mostRules = 10_000
	mostText  = 1024

	// MaxUserBytes bounds a user's own file. The daemon reads the file, and compares its rules at each
	// exec, and other users need the daemon, too.
	MaxUserBytes = 64 << 10
	// MaxUserRules bounds the rules in a user's own file.
	MaxUserRules = 128
	// MaxUserText bounds a text in a user's own file, and the number of texts in a list.
	MaxUserText = 128
)

// Parse reads the rules of a file. An error is of type Problems and has all mistakes.
func Parse(file string, text []byte, in Context) ([]*Rule, error) {
	switch {
	case in.OfUser && len(text) > MaxUserBytes:
		return nil, Problems{{File: file, Line: 1, Column: 1, Message: "a user's own file has more than 64 KB", Remedy: "let one rule name several programs"}}
	case len(text) > MaxBytes:
		return nil, Problems{{File: file, Line: 1, Column: 1, Message: "the file has more than 1 MB", Remedy: "divide it into files in conf.d"}}
	}
	var doc map[string]any
	if err := toml.Unmarshal(text, &doc); err != nil {
		p := &Problem{File: file, Line: 1, Column: 1, Message: "this is no TOML: " + err.Error(), Remedy: "the format: https://toml.io"}
		var at *toml.DecodeError
		if errors.As(err, &at) {
			p.Line, p.Column = at.Position()
			p.Message = "this is no TOML: " + strings.TrimPrefix(at.Error(), "toml: ")
		}
		return nil, Problems{p}
	}
	r := reader{file: file, in: in, at: locate(text)}
	return r.document(doc)
}

// reader turns a TOML document into rules and collects the mistakes.
type reader struct {
	file     string
	in       Context
	at       positions
	problems Problems
}

// object is one rule's table.
type object struct {
	*reader
	index int
	keys  map[string]any
}

func (r *reader) problem(at position, remedy, format string, args ...any) {
	r.problems = append(r.problems, &Problem{
		File: r.file, Line: at.line, Column: at.column, Message: fmt.Sprintf(format, args...), Remedy: remedy,
	})
}

func (o object) problem(key, remedy, format string, args ...any) {
	o.reader.problem(o.at.of(o.index, key), remedy, format, args...)
}

func (r *reader) document(doc map[string]any) ([]*Rule, error) {
	for key := range doc {
		if key != "rule" {
			r.problem(r.at.top(key), "write a rule as: [[rule]]", "there is no section or key %q here", key)
		}
	}
	tables, ok := doc["rule"].([]any)
	if doc["rule"] != nil && !ok {
		r.problem(r.at.top("rule"), "write two brackets: [[rule]]", "rule is one table, not a list of them")
	}
	most := mostRules
	if r.in.OfUser {
		most = MaxUserRules
	}
	if len(tables) > most {
		r.problem(r.at.top("rule"), "let one rule name several programs", "there are more than %d rules", most)
		tables = nil
	}
	var list []*Rule
	lineOf := map[string]int{}
	for i, table := range tables {
		keys, ok := table.(map[string]any)
		if !ok {
			r.problem(r.at.of(i, ""), "write a rule as: [[rule]]", "a rule is a table")
			continue
		}
		o := object{reader: r, index: i, keys: keys}
		rule := o.rule()
		if line := lineOf[rule.Name]; line != 0 {
			o.problem("name", "give each rule a name of its own", "line %d has a rule named %q already", line, rule.Name)
		}
		lineOf[rule.Name] = rule.Line
		list = append(list, rule)
	}
	if len(r.problems) > 0 {
		return nil, r.problems.sorted()
	}
	prefixes := mostDestinations
	if r.in.OfUser {
		prefixes = MaxUserDestinations
	}
	if p := checkDestinations(list, prefixes); p != nil {
		return nil, p
	}
	return list, nil
}

// rule reads one table.
func (o object) rule() *Rule {
	o.checkKeys()
	r := &Rule{File: o.file, Line: o.at.of(o.index, "").line, Share: ShareEach}
	r.Name = lineName(r.Line)
	if text, ok := o.text("name"); ok {
		r.Name = text
		if text == "" || len(text) > 64 || strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) {
			o.problem("name", `such as: name = "scp"`, "a name has 1 to 64 characters on one line")
		}
	}
	o.conditions(r)
	o.limits(r)
	if r.Everybody() {
		r.Share = ShareAll
	}
	if text, ok := o.text("share"); ok {
		if r.Share = Share(text); r.Share != ShareEach && r.Share != ShareAll {
			o.problem("share", `"each" (each process that matches, with its children) or "all" (all together)`, "share is %q", text)
		}
		if r.Everybody() && text == string(ShareEach) {
			o.problem("share", "say of whom: program, command, user, cgroup, unit, container or parent; or remove the line",
				"without a process that is meant, all have one limit together")
		}
	}
	if value, there := o.keys["also"]; there {
		also, ok := value.(bool)
		if !ok {
			o.problem("also", "also = true", "also is neither true nor false")
		}
		r.Also = also
		if also && r.Destined() {
			o.problem("also", "remove the line", "also has no meaning for a part of the traffic: the first rule that matches a connection holds, beside what holds for its process")
		}
	}
	for _, key := range []string{"weight", "min", "min_down"} {
		if _, there := o.keys[key]; there && r.Destined() {
			o.problem(key, "set it in a rule without to, port and protocol", "%s has no meaning for a part of the traffic", key)
		}
	}
	o.adapts(r)
	return r
}

// unknownKeys returns the keys that no rule has.
func (o object) unknownKeys() (list []string) {
	known := keysOfRule()
	for key := range o.keys {
		if !slices.Contains(known, key) {
			list = append(list, key)
		}
	}
	return list
}

func (o object) checkKeys() {
	for _, key := range o.unknownKeys() {
		if key == "destination" {
			o.problem(key, "to = ...", "a destination is called to")
			continue
		}
		known := keysOfRule()
		hint := "a rule has: " + strings.Join(known, ", ")
		if like := similar.Words(key, known); len(like) > 0 {
			hint = "did you mean " + strings.Join(like, " or ") + "?"
		}
		o.problem(key, hint, "a rule has no key %q", key)
	}
}

// conditions reads the conditions on processes.
func (o object) conditions(r *Rule) {
	say := func(key string, texts []string) {
		if len(texts) > 0 {
			r.said = append(r.said, key+" "+strings.Join(texts, " or "))
		}
	}
	programs := func(key string) (list []program) {
		texts := o.texts(key)
		for _, text := range texts {
			p, err := newProgram(text)
			if err != nil {
				o.problem(key, key+` = "scp" (a name), "/usr/bin/scp" (a path) or "python3*" (a pattern)`, "%v", err)
				continue
			}
			list = append(list, p)
		}
		say(key, texts)
		return list
	}
	r.programs = programs("program")
	r.parents = programs("parent")
	commands := o.texts("command")
	for _, text := range commands {
		c, err := newCommand(text)
		if err != nil {
			o.problem("command", "* is any text, ? any character", "%v", err)
			continue
		}
		r.commands = append(r.commands, c)
	}
	say("command", commands)
	users := o.texts("user")
	if o.in.OfUser && len(users) > 0 {
		o.problem("user", "remove the line: this file's rules are for your own processes", "a user's own rule names no user")
		users = nil
	}
	for _, text := range users {
		uid, err := o.in.LookupUser(text)
		if err != nil {
			o.problem("user", "getent passwd shows names and uids", "%v", err)
			continue
		}
		r.users = append(r.users, uid)
	}
	say("user", users)
	o.groups(r, say)
	o.destination(r, say)
	o.when(r, say)
	if len(r.said) == 0 && len(o.problems) == 0 {
		o.problem("", "say whom: program, command, user, cgroup, unit, container or parent; which connections: to, port, protocol; for the machine: netnice set --host", "the rule is for every process")
	}
}

// groups reads cgroups, units and containers.
func (o object) groups(r *Rule, say func(string, []string)) {
	r.cgroups = o.texts("cgroup")
	for i, text := range r.cgroups {
		clean := path.Clean("/" + strings.TrimPrefix(strings.TrimPrefix(text, "/sys/fs/cgroup/unified"), "/sys/fs/cgroup"))
		if clean == "/" {
			o.problem("cgroup", "for the machine: netnice set --host", "the root cgroup is every process")
		}
		r.cgroups[i] = clean
	}
	say("cgroup", r.cgroups)
	r.units = o.texts("unit")
	for i, text := range r.units {
		if text == "" || strings.Contains(text, "/") {
			o.problem("unit", `such as: unit = "backup.service"; for a path: cgroup`, "%q is no unit's name", text)
		}
		if !strings.Contains(text, ".") {
			r.units[i] = text + ".service"
		}
	}
	say("unit", r.units)
	o.inContainers(r, say)
}

// when reads times and days.
func (o object) when(r *Rule, say func(string, []string)) {
	times := o.texts("time")
	for _, text := range times {
		s, err := parseSpan(text)
		if err != nil {
			o.problem("time", `such as: time = "08:30-17:00" or "22:00-06:00"`, "%v", err)
			continue
		}
		r.window.spans = append(r.window.spans, s)
	}
	days := o.texts("days")
	for _, text := range days {
		if err := r.window.addDays(text); err != nil {
			o.problem("days", `such as: days = "mon-fri" or ["sat", "sun"]`, "%v", err)
		}
	}
	// A time alone selects no process.
	if len(r.said) == 0 && len(times)+len(days) > 0 {
		o.problem("", "say whom: program, command, user, cgroup, unit, container or parent; or which connections: to, port, protocol", "the rule is for every process")
	}
	say("time", times)
	say("days", days)
}

func (o object) limits(r *Rule) {
	rate := func(key string) *uint64 {
		text, ok := o.text(key)
		if !ok {
			return nil
		}
		value, err := units.ParseRate(text)
		if err != nil {
			var bad *units.ParseError
			remedy := `such as: up = "1MB/s"`
			if errors.As(err, &bad) {
				remedy = bad.Remedy
			}
			o.problem(key, remedy, "%s: %v", key, err)
		} else {
			o.noteRate(r, key, text)
		}
		return &value
	}
	r.Limits = Limits{UpBytesPerSec: rate("up"), DownBytesPerSec: rate("down"), TotalBytesPerSec: rate("total")}
	if value, there := o.keys["weight"]; there {
		weight, ok := value.(int64)
		switch {
		case !ok || weight < 1 || weight > limit.MaxWeight:
			o.problem("weight", "weight = 50; 100 is the default", "a weight is a number from 1 to %d", limit.MaxWeight)
		case o.in.OfUser && weight > limit.DefaultWeight:
			o.problem("weight", "weight = 100, or less", "only the administrator may raise a weight above %d", limit.DefaultWeight)
		default:
			r.Limits.Weight = uint32(weight)
		}
	}
	for key, to := range map[string]*uint64{"min": &r.Limits.MinBytesPerSec, "min_down": &r.Limits.MinDownBytesPerSec} {
		least := rate(key)
		if least == nil {
			continue
		}
		if o.in.OfUser {
			o.problem(key, "remove the line", "only the administrator may guarantee a rate, to which others give way")
		}
		*to = *least
	}
	// A mistyped key has a problem of its own.
	if len(o.unknownKeys()) == 0 && !slices.ContainsFunc([]string{"up", "down", "total", "min", "min_down", "weight", "adapt"}, func(key string) bool { return o.keys[key] != nil }) {
		o.problem("", `such as: up = "1MB/s"; up = "none" frees what matches from the rules below`, "the rule sets nothing: neither up, down, total, min, min_down, weight nor adapt")
	}
}
