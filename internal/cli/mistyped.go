package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/netnice/netnice/internal/similar"
	"github.com/netnice/netnice/internal/units"
)

// elsewhere returns the netnice command for a verb of other programs, "" if it is unknown. The list excludes verbs that
// netnice may get later, such as block: a user who types one gets an answer, and no other command.
func elsewhere(verb string) string {
	switch verb {
	case "list", "ps":
		return "netnice ls"
	case "start":
		return "netnice up"
	case "stop":
		return "netnice down"
	case "limit", "throttle", "shape":
		return "netnice set"
	case "remove", "rm", "delete", "del", "clear", "reset", "flush":
		return "netnice unset SUBJECT, or netnice unset --all"
	case "top":
		return "netnice ls --watch"
	}
	return ""
}

// noBlock names the commands that come near to a block. Netnice has no command to block, and its lowest limit still
// lets traffic through.
const noBlock = `netnice set SUBJECT --total 1kB/s slows it down to next to nothing, and lets that through: it is no block
the firewall (nft) blocks, and for a unit: systemctl set-property UNIT IPAddressDeny=any`

// unknownCommand returns the error for a first argument that is neither a subject nor a command.
func unknownCommand(cmd *cobra.Command, args []string) error {
	word := args[0]
	if word == "block" {
		return fail(noBlock, "netnice has no command to block traffic yet")
	}
	names := commandNames(cmd)
	hint := cmd.CommandPath() + " --help"
	if there := elsewhere(word); there != "" {
		hint = "did you mean " + there + "?"
	} else if like := similar.Words(word, names); len(like) > 0 {
		hint = "did you mean netnice " + strings.Join(like, " or netnice ") + "?"
	} else if len(args) > 1 {
		if _, err := units.ParseRate(args[1]); err == nil {
			hint = "for the processes that run it: netnice name:" + word + " " + args[1] + "\n" + hint
		}
	}
	return fail(hint, "%q is neither a command nor a process id", word)
}

// commandNames lists a command's subcommands that users see.
func commandNames(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// subcommand refuses words after a command that only has subcommands, if they are none of these.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	names := commandNames(cmd)
	hint := cmd.CommandPath() + " " + strings.Join(names, "|")
	word := args[0]
	if word == "ls" {
		word = "list"
	}
	if like := similar.Words(word, names); len(like) > 0 {
		hint = "did you mean " + cmd.CommandPath() + " " + like[0] + "?"
	}
	return fail(hint, "%s has no command %q", cmd.CommandPath(), args[0])
}

// flagsElsewhere returns the flags of netnice for the name of a flag of other programs.
func flagsElsewhere(name string) []string {
	switch name {
	case "upload", "egress", "out":
		return []string{"up"}
	case "download", "ingress", "in":
		return []string{"down"}
	case "rate", "limit", "limit-rate", "bandwidth", "bwlimit":
		return []string{"up", "down", "total"}
	case "process":
		return []string{"pid"}
	case "device", "dev", "interface", "iface":
		return []string{"link"}
	case "dest", "destination", "dst", "ip":
		return []string{"to"}
	}
	return nil
}

// similarFlags returns the flags of a command that an unknown flag may stand for, as they are written.
func similarFlags(cmd *cobra.Command, name string) []string {
	var names, out []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { // the flags that every command has are among them
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	for _, there := range flagsElsewhere(name) {
		if slices.Contains(names, there) {
			out = append(out, "--"+there)
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, like := range similar.Words(name, names) {
		out = append(out, "--"+like)
	}
	return out
}
