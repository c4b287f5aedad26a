package cli

import (
	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/destination"
)

const toHelp = "such as --to 10.0.0.0/8:443, --to '[2001:db8::/32]:443', --to any --except 10.0.0.0/8, --to 192.0.2.7 --protocol udp"

// toFlags are what a part of the traffic is named by.
type toFlags struct {
	to, except []string
	protocol   string
}

func (f *toFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.to, "to", nil, "what goes to, and comes from, a `prefix[:port[-port]]`, or any; several have one limit together")
	flags.StringArrayVar(&f.except, "except", nil, "with --to: but not a `prefix` in it")
	flags.StringVar(&f.protocol, "protocol", "", "with --to: `tcp` or udp only")
	_ = cmd.RegisterFlagCompletionFunc("protocol", cobra.FixedCompletions([]string{"tcp", "udp"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("to", cobra.FixedCompletions([]string{"any"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("except", cobra.NoFileCompletions)
}

func (f *toFlags) given() bool { return len(f.to)+len(f.except) > 0 || f.protocol != "" }

// subject is the part of the traffic of one whom other flags or words name, or of everybody.
func (f *toFlags) subject(whose []api.Subject) (api.Subject, error) {
	if len(f.to) == 0 {
		return api.Subject{}, fail(toHelp, "--except and --protocol say of what --to is for: give that, too")
	}
	s, under, err := destination.FromFlags(f.to, f.except, f.protocol)
	if err != nil {
		return api.Subject{}, fail(toHelp, "--to: %v", err)
	}
	if len(whose) == 1 {
		if under != (api.Subject{}) && under != whose[0] {
			return api.Subject{}, fail("give one of them", "more than one subject given: %s and %s", under, whose[0])
		}
		under = whose[0]
	}
	return ofWhom(s, under)
}

// toSubject reads the id of such a subject.
func toSubject(id string) (api.Subject, error) {
	s, under, err := destination.Parse(id)
	if err != nil {
		return api.Subject{}, fail(toHelp, "%v", err)
	}
	return ofWhom(s, under)
}

// ofWhom checks whose the traffic is; the host's is everybody's.
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

// underOf is whom a subject's traffic is of, the zero value for everybody's or no such one.
func underOf(s api.Subject) api.Subject {
	if s.Kind != api.KindTo {
		return api.Subject{}
	}
	_, under, _ := destination.Parse(s.ID) // it was made by that
	return under
}
