package shaping

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/netnice/netnice/internal/bpf"
)

// A datagram in parts that does not fit in a buffer which was made small fails. Which
// socket's it was, a program tells that every packet meets which is dropped; so it is
// attached only while namespaces with such sockets count datagrams that could not be sent.

// shortLooks is for how many looks without one it stays.
const shortLooks = 5

// short is what was seen of datagrams that could not be sent.
type short struct {
	discards map[uint32]uint64 // by namespace
	quiet    int               // looks since one was
}

// followShort has it be told whose datagrams do not fit, if some do not.
func (s *sender) followShort(small []*bpf.BufferRecord) error {
	now := map[uint32]uint64{}
	s.short.quiet++
	for _, r := range small {
		if _, known := now[r.Netns]; known {
			continue
		}
		n, err := discards(r.Tgid)
		if err != nil {
			continue // it has ended, or its /proc cannot be read
		}
		now[r.Netns] = n
		if was, known := s.short.discards[r.Netns]; known && was != n {
			s.short.quiet = 0
		}
	}
	s.short.discards = now
	return s.obj.FollowShort(len(small) > 0 && s.short.quiet < shortLooks)
}

// discards counts the packets that could not be sent in a process's network namespace.
func discards(tgid uint32) (uint64, error) {
	v4, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/snmp", tgid))
	if err != nil {
		return 0, fmt.Errorf("read what could not be sent: %w", err)
	}
	v6, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/snmp6", tgid)) // there may be no IPv6
	return discardsIn(string(v4), string(v6)), nil
}

// discardsIn takes the counts out of the kernel's tables: one of a line of names and one of
// figures for each protocol, and one of a line for each figure.
func discardsIn(v4, v6 string) (n uint64) {
	const name = "OutDiscards"
	at := -1
	for line := range strings.Lines(v4) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] != "Ip:":
		case at < 0:
			for i, f := range fields {
				if f == name {
					at = i
				}
			}
		case at < len(fields):
			n, _ = strconv.ParseUint(fields[at], 10, 64) // the kernel's
		}
	}
	for line := range strings.Lines(v6) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "Ip6"+name {
			six, _ := strconv.ParseUint(fields[1], 10, 64)
			n += six
		}
	}
	return n
}
