package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/netnice/netnice/internal/units"
)

const (
	window      = 10 * time.Second
	quickWindow = time.Second
	// baselineTime is for how long the path is measured without a limit.
	baselineTime = 2 * time.Second
	// lateAnswers is how long answers are waited for after a cell's windows.
	lateAnswers = 2 * time.Second

	roundTrip = 20 * time.Millisecond
	// fastestDistant is the highest limit over the emulated path. Three times as much is what its
	// relay, a process that takes a packet at a time, carries with a processor to spare.
	fastestDistant = 10_000_000 // bytes/s

	// floodFactor is how much a flood of datagrams offers, over the limit.
	floodFactor = 3
	// askedPart is the most that questions and answers of one program take of a limit.
	askedPart = 0.05

	questionBytes = 100
	replyBytes    = 12_000
	packetHeaders = 28 // of IPv4 and UDP
)

// direction is one of netnice's.
type direction string

const (
	up    direction = "up"
	down  direction = "down"
	total direction = "total"
)

// rival is what uses up the limit.
type rival string

const (
	udpFlood rival = "UDP"
	tcpBulk  rival = "TCP"
)

// cell is a measurement: a user with a limit, whose programs ask while one of them uses all of it.
// What uses it is sent where sending alone is limited, and received else.
type cell struct {
	limit  uint64 // bytes/s
	way    direction
	beside rival
}

func (c cell) String() string {
	return fmt.Sprintf("%s %s beside %s", c.limitText(), c.way, c.beside)
}

// limitText is the limit as one word.
func (c cell) limitText() string {
	return strings.ReplaceAll(units.FormatRate(c.limit, units.Bytes), " ", "")
}

// allCells are in order of their limits, so that those with the same path follow each other.
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

// every is the pause from one question to the next: 20 ms, and more where questions and answers
// would be a noticeable part of the limit.
func (c cell) every() time.Duration {
	seconds := 2 * (questionBytes + packetHeaders) / (askedPart * float64(c.limit))
	return max(20*time.Millisecond, time.Duration(seconds*float64(time.Second)))
}

// estimate is how long cells take.
func estimate(cells []cell, window time.Duration) time.Duration {
	const begin = 1500 * time.Millisecond // programs that start, commands
	return time.Duration(len(cells)) * (2*window + lateAnswers + begin)
}
