package delay

import (
	"fmt"
	"strings"
	"time"

	"github.com/netnice/netnice/internal/units"
)

const (
	window      = 10 * time.Second
	quickWindow = time.Second
	// baselineTime is the length of the measurement without a limit.
	baselineTime = 2 * time.Second
	// lateAnswers is the time after a cell's windows in which answers still count.
	lateAnswers = 2 * time.Second

	roundTrip = 20 * time.Millisecond
	// fastestDistant is the highest limit over the emulated path. The path's relay is a process that takes one
	// packet at a time. It carries three times that rate with a processor to spare.
	fastestDistant = 10_000_000 // bytes/s

	// floodFactor is the rate of a flood of datagrams, as a multiple of the limit.
	floodFactor = 3
	// askedPart bounds the questions and answers of one program, as a part of a limit.
	askedPart = 0.05

	questionBytes = 100
	replyBytes    = 12_000
	packetHeaders = 28 // headers of IPv4 and UDP
)

// direction is a direction of netnice's limits.
type direction string

const (
	up    direction = "up"
	down  direction = "down"
	total direction = "total"
)

// rival is the traffic that uses up the limit.
type rival string

const (
	udpFlood rival = "UDP"
	tcpBulk  rival = "TCP"
)

// cell is a measurement: a user with a limit, whose programs ask while one of them uses all of it. The rival traffic
// is sent where only egress is limited, and received otherwise.
type cell struct {
	limit  uint64 // bytes/s
	way    direction
	beside rival
}

func (c cell) String() string {
	return fmt.Sprintf("%s %s beside %s", c.limitText(), c.way, c.beside)
}

// limitText returns the limit as one word.
func (c cell) limitText() string {
	return strings.ReplaceAll(units.FormatRate(c.limit, units.Bytes), " ", "")
}

// allCells returns the cells in order of their limits, so that cells with the same path follow each other.
func allCells(quick bool) (list []cell) {
	limits := []uint64{10_000, 100_000, 1_000_000, 10_000_000, 100_000_000}
	if quick {
		limits = []uint64{1_000_000}
	}
	for _, limit := range limits {
		for _, way := range []direction{up, down, total} {
			for _, beside := range []rival{udpFlood, tcpBulk} {
				list = append(list, cell{limit, way, beside})
			}
		}
	}
	return list
}

// distant says whether the cell is over the emulated path.
func (c cell) distant() bool { return c.limit <= fastestDistant }

// every returns the pause from one question to the next. It is 20 ms, and more where questions and answers would be
// a noticeable part of the limit.
func (c cell) every() time.Duration {
	seconds := 2 * (questionBytes + packetHeaders) / (askedPart * float64(c.limit))
	return max(20*time.Millisecond, time.Duration(seconds*float64(time.Second)))
}

// estimate returns the time that cells take.
func estimate(cells []cell, window time.Duration) time.Duration {
	const begin = 1500 * time.Millisecond // start of programs, and commands
	return time.Duration(len(cells)) * (2*window + lateAnswers + begin)
}
