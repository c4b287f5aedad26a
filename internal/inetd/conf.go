// Package inetd serves the services of a file in the manner of inetd.conf(5): it listens, and starts a program for each
// connection. It sets no limits. A service may have a rate as its last word, which the package hands to the caller's
// function that starts the program.
package inetd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/units"
)

// Internal is the Server of services that are built in.
const Internal = "internal"

// Service is one line of the file.
type Service struct {
	Line    int
	Name    string // as written: "ftp", "8021", "127.0.0.1:ftp"
	Network string // "tcp", "tcp4", "tcp6", "udp", "udp4", "udp6"
	Address string // host:port, the host empty for any
	Wait    bool   // the program gets the socket itself, one at a time
	// PerMinute bounds the programs that are started in a minute, Children those that run at a time; 0 = any number.
	PerMinute, Children int
	// ClientPerMinute and ClientChildren are the same bounds for each client.
	ClientPerMinute, ClientChildren int
	User, Group                     string // Group "" = the user's own
	Server                          string
	Args                            []string // the program's arguments, its name first
	RateBytesPerSec                 uint64   // the limit of each session, in and out together; 0 = none
}

// Datagrams reports whether the service uses UDP.
func (s Service) Datagrams() bool { return strings.HasPrefix(s.Network, "udp") }

// key is the same for two services that listen to the same socket.
func (s Service) key() string { return s.Network + " " + s.Address }

// Problem is a mistake in the file.
type Problem struct {
	Line   int
	Text   string
	Remedy string
}

func (p Problem) Error() string { return fmt.Sprintf("line %d: %s", p.Line, p.Text) }

// Problems are all mistakes of a file, in the order of its lines.
type Problems []Problem

func (p Problems) Error() string {
	if len(p) == 1 {
		return p[0].Error()
	}
	return fmt.Sprintf("%d mistakes, the first in %v", len(p), p[0])
}

const usual = "ftp stream tcp nowait root /usr/sbin/ftpd ftpd -l @128Kbyte/sec"

// Accounts finds users and groups by name, as an *account.Directory does. The error for a name that does not exist is
// account.ErrUnknown.
type Accounts interface {
	User(ctx context.Context, name string) (account.User, error)
	Group(ctx context.Context, name string) (account.Group, error)
}

// Parse reads a file, and looks up its users and groups in accounts. The error may be of type Problems.
func Parse(r io.Reader, accounts Accounts) (services []Service, err error) {
	var problems Problems
	in := bufio.NewScanner(r)
	for line := 1; in.Scan(); line++ {
		text, _, _ := strings.Cut(in.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		s, err := parseLine(words, accounts)
		s.Line = line
		if err == nil && slices.ContainsFunc(services, func(o Service) bool { return o.key() == s.key() }) {
			err = bad("another line of this file has it", "%s is served already", s.Name)
		}
		var p Problem
		if errors.As(err, &p) {
			p.Line = line
			problems = append(problems, p)
			continue
		}
		services = append(services, s)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("read services: %w", err)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return services, nil
}

func bad(remedy, format string, args ...any) error {
	return Problem{Text: fmt.Sprintf(format, args...), Remedy: remedy}
}

func parseLine(words []string, accounts Accounts) (s Service, err error) {
	if len(words) < 6 {
		return s, bad("a line is such as: "+usual, "%d words, want at least 6", len(words))
	}
	s.Name = words[0]
	if err := s.parseSocket(words[1], words[2]); err != nil {
		return s, err
	}
	if err := s.parseWait(words[3]); err != nil {
		return s, err
	}
	if err := s.parseUser(words[4], accounts); err != nil {
		return s, err
	}
	s.Server, s.Args = words[5], words[6:]
	if last := len(s.Args) - 1; last >= 0 && strings.HasPrefix(s.Args[last], "@") {
		rate, err := units.ParseRate(s.Args[last][1:])
		var parse *units.ParseError
		if errors.As(err, &parse) {
			return s, bad("such as @128Kbyte/sec: "+parse.Remedy, "%s: %v", s.Args[last], err)
		}
		s.RateBytesPerSec, s.Args = rate, s.Args[:last]
	}
	if s.Server == Internal {
		return s, s.checkInternal()
	}
	if !strings.HasPrefix(s.Server, "/") {
		return s, bad("such as /usr/sbin/ftpd, or "+Internal, "the program %q is no path", s.Server)
	}
	if len(s.Args) == 0 {
		s.Args = []string{s.program()}
	}
	return s, s.checkOptions()
}

// program returns the name of the service's program without its folder.
func (s Service) program() string { return s.Server[strings.LastIndex(s.Server, "/")+1:] }

// checkOptions refuses ftpd -1, as the netnice paper's Figure 2 is easily read. It is FreeBSD's ftpd -l, which logs each
// session. No ftpd has an option -1: it would complain to its client, and the administrator would not learn of it.
func (s Service) checkOptions() error {
	if name := s.program(); (name == "ftpd" || name == "in.ftpd") && slices.Contains(s.Args[1:], "-1") {
		return bad("-l, with the letter, logs each session; netnice inetd --total RATE gives each session an equal part", "%s has no option -1, and it is no rate", name)
	}
	return nil
}

// parseSocket reads the type, the protocol, and the port, which depends on both.
func (s *Service) parseSocket(kind, protocol string) error {
	networks := map[string][]string{"stream": {"tcp", "tcp4", "tcp6", "tcp46"}, "dgram": {"udp", "udp4", "udp6", "udp46"}}
	known, ok := networks[kind]
	if !ok {
		return bad("stream, for TCP, or dgram, for UDP", "no such type of socket is served: %q", kind)
	}
	if !slices.Contains(known, protocol) {
		return bad(strings.Join(known, ", "), "%s sockets have no protocol %q", kind, protocol)
	}
	s.Network = strings.TrimSuffix(protocol, "46")
	host, service := "", s.Name
	if i := strings.LastIndex(s.Name, ":"); i >= 0 {
		host, service = strings.Trim(s.Name[:i], "[]"), s.Name[i+1:]
		if host == "*" {
			host = ""
		}
		if host != "" && net.ParseIP(host) == nil {
			return bad("an address, such as 127.0.0.1:ftp or [::1]:ftp", "%q is no address", host)
		}
	}
	port, err := net.LookupPort(s.Network, service)
	if err != nil || port == 0 {
		return bad("a name of /etc/services, or a number", "no service is called %q", service)
	}
	s.Address = net.JoinHostPort(host, strconv.Itoa(port))
	return nil
}

// parseWait reads wait or nowait, and bounds on the sessions. nowait.40 allows 40 in a minute, nowait/10 allows 10 at a
// time. nowait/10/20/2 also allows each client 20 in a minute and 2 at a time, where 0 is any number.
func (s *Service) parseWait(text string) error {
	const remedy = "wait, nowait, nowait.40 for at most 40 in a minute, nowait/10 for at most 10 at a time, nowait/10/20/2 and for each client 20 in a minute and 2 at a time"
	word, most, bounded := strings.Cut(text, "/")
	word, minute, hasMinute := strings.Cut(word, ".")
	var numbers []string
	if bounded {
		numbers = strings.Split(most, "/")
	}
	bounds := []*int{&s.Children, &s.ClientPerMinute, &s.ClientChildren}
	if len(numbers) > len(bounds) {
		return bad(remedy, "%q has too many numbers", text)
	}
	least := 0 // 0 = any number, which a word with several numbers may say
	if len(numbers) == 1 {
		least = 1
	}
	read := func(text string, least int, to *int) (ok bool) {
		v, err := strconv.Atoi(text)
		*to = v
		return err == nil && v >= least
	}
	ok := !hasMinute || read(minute, 1, &s.PerMinute)
	for i, n := range numbers {
		ok = ok && read(n, least, bounds[i])
	}
	if !ok {
		return bad(remedy, "%q has no number of programs", text)
	}
	if word != "wait" && word != "nowait" {
		return bad(remedy, "neither wait nor nowait: %q", text)
	}
	s.Wait = word == "wait"
	if (s.Wait || s.Datagrams()) && (s.ClientPerMinute != 0 || s.ClientChildren != 0) {
		return bad("nowait of a stream, or no numbers of each client", "whose program gets the socket itself does not know its clients: %q", text)
	}
	return nil
}

// parseUser reads user, user:group or user.group.
func (s *Service) parseUser(text string, accounts Accounts) error {
	ctx := context.Background()
	name, group, both := strings.Cut(text, ":")
	if !both {
		if _, err := accounts.User(ctx, text); err != nil { // a user's name may contain a dot
			name, group, _ = strings.Cut(text, ".")
		}
	}
	if _, err := accounts.User(ctx, name); err != nil {
		return noAccount(err, "user", name, "getent passwd")
	}
	if group != "" {
		if _, err := accounts.Group(ctx, group); err != nil {
			return noAccount(err, "group", group, "getent group")
		}
	}
	s.User, s.Group = name, group
	return nil
}

// noAccount words the error of an account that does not exist, and that of an account about which the name service does
// not answer.
func noAccount(err error, kind, name, command string) error {
	if errors.Is(err, account.ErrUnknown) {
		return bad("a name that "+command+" shows", "there is no %s %q", kind, name)
	}
	return bad("time "+command+" "+name+"  asks the same", "the %s %q cannot be looked up: %v", kind, name, err)
}

func (s *Service) checkInternal() error {
	service := s.Name[strings.LastIndex(s.Name, ":")+1:]
	if len(s.Args) > 0 { // the service's name, where the port is not its own
		service = s.Args[0]
	}
	if !slices.Contains(builtIn(), service) {
		return bad(strings.Join(builtIn(), ", ")+"; for another port: "+Internal+" NAME", "%q is not built in", service)
	}
	if s.RateBytesPerSec != 0 {
		return bad("netnice inetd --total RATE limits all together", "a service that is built in has no rate of its own")
	}
	s.Args = []string{service}
	return nil
}
