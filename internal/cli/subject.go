package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/netnamespace"
)

// subjectFlags are the ways to name a subject. Each value stands in it, so that a flag which is given twice is refused
// like two different flags.
type subjectFlags struct {
	pid, user, cgroup, unit, container, group, link []string
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
  --container C  a container of Docker, Podman, containerd, LXC or nspawn, by name or id;
                 'web-*' or all: each that there is now, by itself
  --group NAME   processes that netnice fair has put together
  --link DEVICE  what leaves or comes by a network device
  --host         the whole machine
  --to PREFIX[:PORT]  what goes to, and comes from, addresses; beside one of the others, of that
or in words: P, the number of a process; name:PROGRAM, each process that runs it now, by itself
(administrators: everybody's; others: of their own); or as ls prints it: pid:P, user:U, cgroup:PATH, unit:NAME,
container:NAME, group:NAME, link:DEVICE, host, to:PREFIX[:PORT][@SUBJECT].`

// add adds the flags and completes a subject in words.
func (f *subjectFlags) add(a *App, cmd *cobra.Command) {
	f.addWho(a, cmd)
	cmd.Flags().StringArrayVar(&f.link, "link", nil, "what leaves or comes by a network `device`")
	_ = cmd.RegisterFlagCompletionFunc("link", a.completeValue(api.KindLink))
	f.to.add(cmd)
}

// addWho is add without the flags of links and of parts of the traffic.
func (f *subjectFlags) addWho(a *App, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.pid, "pid", "p", nil, "a `process` and its running descendants")
	flags.StringArrayVarP(&f.user, "user", "u", nil, "a `user`, by name or id")
	flags.StringArrayVar(&f.cgroup, "cgroup", nil, "a cgroup v2 by its `path`")
	flags.StringArrayVar(&f.unit, "unit", nil, "a systemd `unit`")
	flags.StringArrayVar(&f.container, "container", nil, "a `container`, by name or id; 'web-*' or all: each by itself")
	flags.BoolVar(&f.host, "host", false, "the whole machine")
	flags.StringArrayVar(&f.group, "group", nil, "processes that netnice fair has put together, by the group's `name`")
	for _, kind := range []api.Kind{api.KindPID, api.KindUser, api.KindUnit, api.KindContainer, api.KindGroup} {
		_ = cmd.RegisterFlagCompletionFunc(string(kind), a.completeValue(kind))
	}
	cmd.ValidArgsFunction = a.completeSubjects
}

// named reads the subjects that flags and words name, patterns too.
func (f *subjectFlags) named(words []string) ([]api.Subject, error) {
	var found []api.Subject
	for _, flag := range []struct {
		kind api.Kind
		ids  []string
	}{
		{api.KindPID, f.pid},
		{api.KindUser, f.user},
		{api.KindCgroup, f.cgroup},
		{api.KindUnit, f.unit},
		{api.KindContainer, f.container},
		{api.KindGroup, f.group},
		{api.KindLink, f.link},
	} {
		for _, id := range flag.ids {
			if id != "" {
				found = append(found, api.Subject{Kind: flag.kind, ID: id})
			}
		}
	}
	if f.host {
		found = append(found, api.Subject{Kind: api.KindHost})
	}
	for _, word := range words {
		s, err := parseSubject(word)
		if err != nil {
			return nil, err
		}
		found = append(found, s)
	}
	return found, nil
}

// selection reads the one subject that flags or words name, or all those that a pattern stands for.
func (f *subjectFlags) selection(ctx context.Context, a *App, words []string) (*selection, error) {
	found, err := f.named(words)
	if err != nil {
		return nil, err
	}
	if len(found) == 1 && isPattern(found[0]) {
		return f.matching(ctx, a, found[0])
	}
	s, err := f.one(found)
	if err != nil {
		return nil, err
	}
	return &selection{subjects: []api.Subject{s}}, nil
}

// matching finds the subjects that a pattern stands for. With --to each subject is that part of its traffic.
func (f *subjectFlags) matching(ctx context.Context, a *App, pattern api.Subject) (*selection, error) {
	s, err := a.expand(ctx, pattern)
	if err != nil || !f.to.given() {
		return s, err
	}
	for _, list := range [][]api.Subject{s.subjects, s.inner} {
		for i := range list {
			if list[i], err = f.to.subject(list[i : i+1]); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// subject is selection for commands that take one subject.
func (f *subjectFlags) subject(ctx context.Context, a *App, words []string) (api.Subject, error) {
	s, err := f.selection(ctx, a, words)
	if err != nil {
		return api.Subject{}, err
	}
	return s.only()
}

// one returns the only subject of those that were named.
func (f *subjectFlags) one(found []api.Subject) (api.Subject, error) {
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

// checkSubject refuses impossible subjects, and turns process 1 into the host.
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

// linkHere adds the network namespace of this process to a device's name, because the daemon may be in another
// namespace.
func linkHere(s api.Subject) api.Subject {
	here, err := netnamespace.Of("self")
	if err != nil || strings.Contains(s.ID, "@") {
		return s
	}
	s.ID += "@" + strconv.FormatUint(uint64(here), 10)
	return s
}

// userHere replaces the name of a user by a number if the user is not in the machine's files. The daemon asks the name
// service, which may be slow, for administrators only.
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
		return "", failWith(exitNoSubject, "ps -e lists those that exist", "there is no process %d", pid)
	case err != nil:
		return "", err
	case !a.System.Alive(pid):
		return "", failWith(exitNoSubject, "ps -e lists those that live", "process %d (%s) has ended", pid, name)
	}
	return name, nil
}
