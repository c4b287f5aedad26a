package auth

import (
	"fmt"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/rules"
)

// These quotas bound one user's part of shared resources. A user with user ids of /etc/subuid has the quota once, for
// all of these ids together. Root and members of the administrators' group have no bound but the totals.
const (
	// MaxNodes bounds the number of limits; the last ones are for the administrator. Their numbers are not used again
	// at once.
	MaxNodes        = enforce.MaxNodes / 2
	MaxNodesOfUsers = MaxNodes - 1024
	// MaxNodesPerUser bounds the nodes on which a user has a wish, by a command or by a rule.
	MaxNodesPerUser = 256
	// MaxRuledPerUser bounds the processes of a user that have a node of their own under the administrator's rules.
	// Further processes share one limit for each rule.
	MaxRuledPerUser = 512

	// MaxPowersPerUser bounds the processes on which a user may set a CPU share.
	MaxPowersPerUser = 256
	// MaxPowerAsksPerUser bounds a user's unanswered requests about the processors by a socket option.
	MaxPowerAsksPerUser = 16

	// MaxConnsPerUser bounds a user's open connections to the daemon, MaxConnsOfUsers those of all users together.
	// Beyond that, the user with the most connections gives one to a user with fewer.
	MaxConnsPerUser = 64
	MaxConnsOfUsers = 1024

	// MaxStreamsPerUser bounds a user's connections that receive events at a time.
	MaxStreamsPerUser = 8
	// MaxMeasuredPerUser bounds a user's running measurements of the binding limits. MaxMeasuredOfUsers bounds those of
	// all users together.
	MaxMeasuredPerUser = 2
	MaxMeasuredOfUsers = 8

	// MaxBody and MaxHeader bound a request, in bytes.
	MaxBody = 64 << 10
	// MaxAdminBody bounds an administrator's request: a list of prefixes may be that long.
	MaxAdminBody = 16 << 20
	MaxHeader    = 16 << 10
	// MaxName bounds a subject's name in a request, in bytes.
	MaxName = 4096

	// RequestsPerSec is the rate of a user's requests in the long run. RequestsAtOnce is the number after a pause. One
	// more waits for up to MaxRequestWait, then it is refused.
	RequestsPerSec = 50
	RequestsAtOnce = 500
	MaxRequestWait = 5 * time.Second
	// ReloadCost is the number of requests that a request to read the rules again counts as. SearchCost is the same for
	// a request that looks for a unit or container. An answer counts as one more for each BytesPerCount bytes.
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

// Busy returns the answer to a caller whose share is used up.
func Busy(message string) error {
	return &api.Error{Code: api.CodeBusy, Message: message, Hint: "wait a second, and try again; root is not bounded: sudo netnice ..."}
}
