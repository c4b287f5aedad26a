package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/netnamespace"
)

// subjectFlags are the ways to name a subject.
type subjectFlags struct {
	pid, user, cgroup, unit, container, group, link string
	host                                            bool
	to                                              toFlags
}

// maxPID is the kernel's own bound (PID_MAX_LIMIT on 64 bits).
const maxPID = 1 << 22

const subjectHelp = `SUBJECT is one of
  --pid P        a process and its running descendants; pid 1 is the host
  --user U       every process of a user, by name or id, also with none running
  --cgroup PATH  every process in a cgroup v2 and below it
  --unit NAME    a systemd unit
  --container C  a container of Docker, Podman, containerd, LXC or nspawn, by name or id
  --group NAME   processes that netnice fair has put together
  --link DEVICE  what leaves or comes by a network device
  --host         the whole machine
  --to PREFIX[:PORT]  what goes to, and comes from, addresses; beside one of the others, of that
or the same as ls prints it: pid:P, user:U, cgroup:PATH, unit:NAME, container:NAME, group:NAME,
link:DEVICE, host, to:PREFIX[:PORT][@SUBJECT].`

// add adds the flags and completes a subject in words.
func (f *subjectFlags) add(a *App, cmd *cobra.Command) {
	f.addWho(a, cmd)
	cmd.Flags().StringVar(&f.link, "link", "", "what leaves or comes by a network `device`")
	f.to.add(cmd)
}

// addWho is add without the flags of links and of parts of the traffic.
func (f *subjectFlags) addWho(a *App, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.pid, "pid", "p", "", "a `process` and its running descendants")
	flags.StringVarP(&f.user, "user", "u", "", "a `user`, by name or id")
	flags.StringVar(&f.cgroup, "cgroup", "", "a cgroup v2 by its `path`")
	flags.StringVar(&f.unit, "unit", "", "a systemd `unit`")
	flags.StringVar(&f.container, "container", "", "a `container`, by name or id")
	flags.BoolVar(&f.host, "host", false, "the whole machine")
	flags.StringVar(&f.group, "group", "", "processes that netnice fair has put together, by the group's `name`")
	cmd.ValidArgsFunction = a.completeSubjects
}

// subject reads the one subject that flags or words name.
func (f *subjectFlags) subject(words []string) (api.Subject, error) {
	var found []api.Subject
	for _, s := range []api.Subject{
		{Kind: api.KindPID, ID: f.pid},
		{Kind: api.KindUser, ID: f.user},
		{Kind: api.KindCgroup, ID: f.cgroup},
		{Kind: api.KindUnit, ID: f.unit},
		{Kind: api.KindContainer, ID: f.container},
		{Kind: api.KindGroup, ID: f.group},
		{Kind: api.KindLink, ID: f.link},
	} {
		if s.ID != "" {
			found = append(found, s)
		}
	}
	if f.host {
		found = append(found, api.Subject{Kind: api.KindHost})
	}
	for _, word := range words {
		s, err := api.ParseSubject(word)
		if err != nil {
			return api.Subject{}, fail(subjectHelp, "%v", err)
		}
		found = append(found, s)
	}
	switch {
	case f.to.given() && len(found) <= 1:
		return f.to.subject(found)
	case len(found) == 0:
		return api.Subject{}, fail(subjectHelp, "no subject given")
	case len(found) == 1:
		return checkSubject(found[0])
	}
	return api.Subject{}, fail("give one of them", "more than one subject given: %s and %s", found[0], found[1])
}

// checkSubject refuses what cannot be and makes the host of pid 1.
func checkSubject(s api.Subject) (api.Subject, error) {
	switch s.Kind {
	case api.KindPID:
		pid, err := parsePID(s.ID)
		if err != nil {
			return api.Subject{}, err
		}
		return pidSubject(pid), nil
	case api.KindLink:
		return linkHere(s), nil
	case api.KindUser:
		if os.Geteuid() != 0 {
			s = userHere(s, account.Machine())
		}
		return s, nil
	case api.KindTo:
		return toSubject(s.ID)
	}
	return s, nil
}

// linkHere adds to a device's name the network namespace of this process: the daemon, which
// looks for it, may be in another.
func linkHere(s api.Subject) api.Subject {
	here, err := netnamespace.Of("self")
	if err != nil || strings.Contains(s.ID, "@") {
		return s
	}
	s.ID += "@" + strconv.FormatUint(uint64(here), 10)
	return s
}

// userHere makes a number of a user whom the files do not have: the daemon asks the name service, which may be slow,
// for administrators only.
func userHere(s api.Subject, accounts *account.Directory) api.Subject {
	if accounts.InFiles(s.ID) {
		return s
	}
	if u, err := accounts.User(context.Background(), s.ID); err == nil {
		s.ID = strconv.FormatUint(uint64(u.UID), 10)
	}
	return s
}

// parsePID reads a process id, 1..maxPID.
func parsePID(text string) (int, error) {
	pid, err := strconv.Atoi(text)
	if err != nil || pid < 1 || pid > maxPID {
		return 0, fail("give a number such as pgrep or ps -e prints", "%q is no process id", text)
	}
	return pid, nil
}

func pidSubject(pid int) api.Subject {
	if pid == 1 {
		return api.Subject{Kind: api.KindHost}
	}
	return api.Subject{Kind: api.KindPID, ID: strconv.Itoa(pid)}
}

// present refuses a process that does not exist, before a daemon is started or
// asked. It returns the process's name, "" for other subjects.
func (a *App) present(s api.Subject) (string, error) {
	if under := underOf(s); under.Kind == api.KindPID {
		s = under
	}
	if s.Kind != api.KindPID {
		return "", nil
	}
	pid, err := parsePID(s.ID)
	if err != nil {
		return "", err
	}
	name, err := a.System.ProcessName(pid)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fail("ps -e lists those that exist", "there is no process %d", pid)
	case err != nil:
		return "", err
	case !a.System.Alive(pid):
		return "", fail("ps -e lists those that live", "process %d (%s) has ended", pid, name)
	}
	return name, nil
}

// completeSubjects offers the subjects that have limits.
func (a *App) completeSubjects(_ *cobra.Command, words []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(words) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second/2)
	defer cancel()
	c := client.New(a.socket)
	defer c.Close()
	list, err := c.Nodes(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, n := range list.Nodes {
		if text := n.Subject.String(); strings.HasPrefix(text, prefix) && (n.Subject.Kind != api.KindTo || !n.IsHidden()) {
			out = append(out, cobra.CompletionWithDesc(text, printable(n.Name)))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
