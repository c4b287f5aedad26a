package auth

import (
	"fmt"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/rules"
)

// What one user may have of what all share. Whoever has user ids of /etc/subuid has it
// once, for all of these together. Root and members of the
// administrators' group have no bound but the totals.
const (
	// MaxNodes is how many limits there may be; the last ones are the administrator's.
	// Their numbers are not used again at once.
	MaxNodes        = enforce.MaxNodes / 2
	MaxNodesOfUsers = MaxNodes - 1024
	// MaxNodesPerUser counts those on which a user has a wish, by a command or by a rule.
	MaxNodesPerUser = 256
	// MaxRuledPerUser is on how many of a user's processes the administrator's rules stand
	// each for itself; those after that share one limit for each rule.
	MaxRuledPerUser = 512

	// MaxPowersPerUser is on how many processes a user may have a share of the processors.
	MaxPowersPerUser = 256
	// MaxPowerAsksPerUser bounds a user's requests about the processors by a socket option that are not answered yet.
	MaxPowerAsksPerUser = 16

	// MaxConnsPerUser bounds the connections to the daemon that are open at a time,
	// MaxConnsOfUsers those of all users together: beyond that, who has most gives one to who
	// has fewer.
	MaxConnsPerUser = 64
	MaxConnsOfUsers = 1024

	// MaxStreamsPerUser is to how many of a user's connections events are told at a time.
	MaxStreamsPerUser = 8
	// MaxMeasuredPerUser is how many measurements of what binds go on for a user, and
	// MaxMeasuredOfUsers for all users together.
	MaxMeasuredPerUser = 2
	MaxMeasuredOfUsers = 8

	// MaxBody and MaxHeader bound a request, in bytes.
	MaxBody = 64 << 10
	// MaxAdminBody is an administrator's: a list of prefixes may be that long.
	MaxAdminBody = 16 << 20
	MaxHeader    = 16 << 10
	// MaxName bounds a subject's name in a request, in bytes.
	MaxName = 4096

	// RequestsPerSec is how many requests a user may go on making, RequestsAtOnce how many
	// without a pause before. One more waits for up to MaxRequestWait, then it is refused.
	RequestsPerSec = 50
	RequestsAtOnce = 500
	MaxRequestWait = 5 * time.Second
	// A request to read the rules again counts as so many, one that looks for a unit or
	// container as so many, and an answer as one more for each so many bytes.
	ReloadCost    = 50
	SearchCost    = 10
	BytesPerCount = 32 << 10
)

// Quota is one line of the table of quotas, for people.
type Quota struct {
	Of, Figure string
}

// Quotas returns the table, as netnice(7) has it.
func Quotas() []Quota {
	return []Quota{
		{"limits of a user's own, by commands and rules", fmt.Sprint(MaxNodesPerUser)},
		{"limits of all users", fmt.Sprint(MaxNodesOfUsers)},
		{"limits in all", fmt.Sprint(MaxNodes)},
		{"sockets of a user's with a rate of their own, of what they receive or of datagrams", fmt.Sprint(enforce.MostSocketsOfUser)},
		{"such sockets in all", fmt.Sprint(enforce.MostSockets)},
		{"limits on processes, around each other", fmt.Sprint(enforce.MostNested)},
		{"of these, a user's own", fmt.Sprint(enforce.MostOwnNested)},
		{"network namespaces of a user's making with queues, in each direction", fmt.Sprint(enforce.MostNamespaces)},
		{"a user's processes with a power (netnice power) of the user's own", fmt.Sprint(MaxPowersPerUser)},
		{"a user's processes under the administrator's rules, each for itself", fmt.Sprint(MaxRuledPerUser)},
		{"connections to the daemon, of a user", fmt.Sprint(MaxConnsPerUser)},
		{"connections of all users", fmt.Sprint(MaxConnsOfUsers)},
		{"of a user's connections, those to which events are told", fmt.Sprint(MaxStreamsPerUser)},
		{"measurements for a user (netnice why) at a time", fmt.Sprint(MaxMeasuredPerUser)},
		{"measurements for all users", fmt.Sprint(MaxMeasuredOfUsers)},
		{"requests of a user, a second", fmt.Sprint(RequestsPerSec)},
		{"requests at once", fmt.Sprint(RequestsAtOnce)},
		{"questions of a user by a socket option (NETNICE_LIMIT), a second", fmt.Sprint(enforce.AsksPerSec)},
		{"questions at once", fmt.Sprint(enforce.AsksAtOnce)},
		{"of these, about the processors (PRIO_POWER)", fmt.Sprint(MaxPowerAsksPerUser)},
		{"bytes of a request", fmt.Sprint(MaxBody)},
		{"bytes of an administrator's request", fmt.Sprint(MaxAdminBody)},
		{"bytes of its header", fmt.Sprint(MaxHeader)},
		{"prefixes of a user's limits for destinations", fmt.Sprint(rules.MaxUserDestinations)},
		{"bytes of a user's file of rules", fmt.Sprint(rules.MaxUserBytes)},
		{"rules in it", fmt.Sprint(rules.MaxUserRules)},
		{"bytes of a text in it, and texts in a list", fmt.Sprint(rules.MaxUserText)},
	}
}

// Busy returns the answer to a caller who has had their share.
func Busy(message string) error {
	return &api.Error{Code: api.CodeBusy, Message: message, Hint: "wait a second, and try again; root is not bounded: sudo netnice ..."}
}
