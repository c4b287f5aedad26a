package rules

import (
	"fmt"

	"github.com/netnice/netnice/internal/limit"
)

// Key is a key that a rule may have. docs/reference/rules.md follows from the table of keys.
type Key struct {
	Name string
	// Value is the form of the value, for people.
	Value string
	// Example is a value, as a file has it.
	Example string
	Means   string
	// IsAdministrators says that a user's own file may not have the key.
	IsAdministrators bool
}

const (
	textsForm = "text, or list of texts"
	rateForm  = "text: a rate with its unit, or `\"none\"`"
)

// Keys returns the keys that a rule may have: for the processes and connections that it matches, for its times, and for
// what it sets.
func Keys() []Key {
	return []Key{
		{Name: "name", Value: "text of 1 to 64 characters", Example: `"scp"`, Means: "The name that lists show. Each rule of a file has a name of its own."},
		{Name: "program", Value: textsForm, Example: `["rsync", "/opt/backup/bin/*"]`, Means: "A program, by its name, its path or a pattern of either."},
		{Name: "command", Value: textsForm, Example: `"python3 *backup.py*"`, Means: "The whole command line. `*` is any text, `?` is any character."},
		{Name: "user", Value: "text or number, or list of them", Example: `"backup"`, Means: "The real user of the process, by name or number.", IsAdministrators: true},
		{Name: "cgroup", Value: textsForm, Example: `"/system.slice/backup.service"`, Means: "A cgroup v2 by its path below the mount, with all below it."},
		{Name: "unit", Value: textsForm, Example: `"nginx"`, Means: "A systemd unit. A name without a dot gets `.service`."},
		{Name: "container", Value: textsForm, Example: `"web-*"`, Means: "A container: its name, a pattern, the first 12 digits of its id, or `\"all\"`.", IsAdministrators: true},
		{Name: "parent", Value: textsForm, Example: `"cron"`, Means: "The program of the parent process, in the form of `program`."},
		{Name: "to", Value: textsForm, Example: `["0.0.0.0/0", "::/0", "!10.0.0.0/8"]`, Means: "Addresses or prefixes of the other end. A leading `!` leaves a prefix out. Names are not looked up."},
		{Name: "port", Value: "number or text, or list of them", Example: `[80, 443, "8000-8100"]`, Means: "Ports of the service, or ranges of ports."},
		{Name: "protocol", Value: "text", Example: `"udp"`, Means: "`\"tcp\"` or `\"udp\"`. Without this key, the rule is for both."},
		{Name: "time", Value: textsForm, Example: `"22:00-06:00"`, Means: "Parts of the day, local time. A part over midnight belongs to the day on which it begins."},
		{Name: "days", Value: textsForm, Example: `"mon-fri"`, Means: "Days of the week, or ranges of days."},
		{Name: "up", Value: rateForm, Example: `"1MB/s"`, Means: "The limit on what the processes send."},
		{Name: "down", Value: rateForm, Example: `"1MB/s"`, Means: "The limit on what the processes receive."},
		{Name: "total", Value: rateForm, Example: `"20mbit"`, Means: "The limit on both directions together."},
		{Name: "min", Value: rateForm, Example: `"1MB/s"`, Means: "The guaranteed rate of sending, inside every enclosing limit.", IsAdministrators: true},
		{Name: "min_down", Value: rateForm, Example: `"1MB/s"`, Means: "The guaranteed rate of receiving by TCP, inside every enclosing limit.", IsAdministrators: true},
		{
			Name: "weight", Value: fmt.Sprintf("number from 1 to %d", limit.MaxWeight), Example: "50",
			Means: fmt.Sprintf("The share beside others inside the same limit; %d without this key. In a user's own file it is at most %[1]d.", limit.DefaultWeight),
		},
		{Name: "adapt", Value: "`true`, or text: 10% to 100%", Example: `"30%"`, Means: "The sending rate follows the path to each host of `to`. The text is the part of the path to keep beside others.", IsAdministrators: true},
		{Name: "share", Value: "text", Example: `"all"`, Means: "`\"each\"`: each process that matches has the limit for itself. `\"all\"`: they have one limit together."},
		{Name: "also", Value: "`true` or `false`", Example: "true", Means: "The rule also holds if an earlier rule matches."},
	}
}

// keysOfRule returns the names of the keys that a rule may have.
func keysOfRule() (names []string) {
	for _, key := range Keys() {
		names = append(names, key.Name)
	}
	return names
}

// Bound is a bound of rule files.
type Bound struct {
	Of                    string
	Administrators, Users int // of the administrators' files, and of a user's own file
}

// Bounds returns the bounds of rule files, for people.
func Bounds() []Bound {
	return []Bound{
		{"bytes of a file", MaxBytes, MaxUserBytes},
		{"rules in a file", mostRules, MaxUserRules},
		{"bytes of a text, and texts in a list", mostText, MaxUserText},
		{"prefixes in `to` of all rules of a file", mostDestinations, MaxUserDestinations},
	}
}
