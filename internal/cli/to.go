package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/destination"
)

const toHelp = "such as --to 10.0.0.0/8:443, --to '[2001:db8::/32]:443', --to any --except 10.0.0.0/8, --to 192.0.2.7 --protocol udp"

// toFlags are the flags that name a part of the traffic.
type toFlags struct {
	to, except []string
	protocol   string
	file       string
	each       bool
}

func (f *toFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.to, "to", nil, "what goes to, and comes from, a `prefix[:port[-port]]`, or any; several have one limit together")
	flags.StringVar(&f.file, "to-file", "", "the same for the prefixes that a `file` lists, one a line")
	flags.StringArrayVar(&f.except, "except", nil, "with --to: but not a `prefix` in it")
	flags.StringVar(&f.protocol, "protocol", "", "with --to: `tcp` or udp only")
	flags.BoolVar(&f.each, "each-peer", false, "with --to: for each address by itself (of IPv6 each /64), not for all together")
	_ = cmd.RegisterFlagCompletionFunc("protocol", cobra.FixedCompletions([]string{"tcp", "udp"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("to", cobra.FixedCompletions([]string{"any"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("except", cobra.NoFileCompletions)
}

func (f *toFlags) given() bool {
	return len(f.to)+len(f.except) > 0 || f.protocol != "" || f.file != "" || f.each
}

// subject returns the part of the traffic of a subject that other flags or words name, or of the whole machine.
func (f *toFlags) subject(whose []api.Subject) (api.Subject, error) {
	to := slices.Clone(f.to)
	if f.file != "" {
		path, err := filepath.Abs(f.file)
		if err == nil {
			err = destination.ListPath(path)
		}
		if err != nil {
			return api.Subject{}, fail(toHelp, "--to-file: %v", err)
		}
		to = append(to, "file:"+path)
	}
	if len(to) == 0 {
		return api.Subject{}, fail(toHelp, "--except, --protocol and --each-peer say of what --to is for: give that, too")
	}
	s, under, err := destination.FromFlags(to, f.except, f.protocol)
	if err != nil {
		return api.Subject{}, fail(toHelp, "--to: %v", err)
	}
	s.Each = s.Each || f.each
	if len(whose) == 1 {
		if under != (api.Subject{}) && under != whose[0] {
			return api.Subject{}, fail("give one of them", "more than one subject given: %s and %s", under, whose[0])
		}
		under = whose[0]
	}
	return ofWhom(s, under)
}

// prefixes reads the file of prefixes, if one is named.
func (a *App) prefixes(f toFlags) ([]string, error) {
	if f.file == "" {
		return nil, nil
	}
	file, err := os.Open(f.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, failWith(exitNoSubject, "it has an address or a prefix a line; # begins a comment", "--to-file: there is no file %s", f.file)
	case err != nil:
		return nil, fail("it has an address or a prefix a line; # begins a comment", "--to-file: %v", err)
	}
	defer file.Close()
	list, mistakes, err := destination.ReadList(file)
	switch {
	case err != nil:
		return nil, fail("it has an address or a prefix a line; # begins a comment", "--to-file: %s: %v", f.file, err)
	case len(mistakes) > 0:
		for _, m := range mistakes {
			fmt.Fprintf(a.Err, "%s:%d: %s\n", printable(f.file), m.Line, printable(m.Text))
		}
		return nil, fail("correct them; nothing was changed", "--to-file: %s", count(len(mistakes), "mistake"))
	case len(list) == 0:
		return nil, fail("it has an address or a prefix a line; # begins a comment", "--to-file: %s lists nothing", f.file)
	}
	texts := make([]string, len(list))
	for i, p := range list {
		texts[i] = p.String()
	}
	return texts, nil
}

// toSubject reads the id of a subject that is a part of the traffic.
func toSubject(id string) (api.Subject, error) {
	if strings.HasPrefix(id, api.Hidden) {
		return api.Subject{}, fail("sudo netnice ls", "%s stands for a destination that only its user and administrators see", api.Hidden)
	}
	s, under, err := destination.Parse(id)
	if err != nil {
		return api.Subject{}, fail(toHelp, "%v", err)
	}
	return ofWhom(s, under)
}

// ofWhom checks the subject that has the traffic. The traffic of the host is that of the whole machine.
func ofWhom(s destination.Selector, under api.Subject) (api.Subject, error) {
	switch under.Kind {
	case api.KindLink, api.KindGroup, api.KindTo, api.KindRule:
		return api.Subject{}, fail("netnice set --user bob --to ...; of a group name its processes: --pid",
			"%s: a part of the traffic is of the host, or of a process, user, cgroup, unit or container", under)
	case api.KindPID:
		checked, err := checkSubject(under)
		if err != nil {
			return api.Subject{}, err
		}
		under = checked
	}
	return s.Subject(under), nil
}

// underOf returns the subject that has the traffic of a destination limit. It returns the zero value for the whole
// machine, and for other kinds of subjects.
func underOf(s api.Subject) api.Subject {
	if s.Kind != api.KindTo {
		return api.Subject{}
	}
	_, under, _ := destination.Parse(s.ID) // no error: the package destination has made the id
	return under
}
