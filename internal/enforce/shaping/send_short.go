package shaping

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/netnice/netnice/internal/bpf"
)

// A datagram in fragments fails if it does not fit in a send buffer that was made small. A BPF program finds the socket
// of such a datagram. Every packet that the kernel drops meets the program. It is therefore attached only while network
// namespaces with such sockets count datagrams that could not be sent.

// shortLooks is how many samples without such a datagram the program stays attached.
const shortLooks = 5

// short is what the samples show of datagrams that could not be sent.
type short struct {
	discards map[uint32]uint64 // OutDiscards, by network namespace
	quiet    int               // samples since a datagram could not be sent
}

// followShort attaches the program that finds the sockets of datagrams that do not fit, while some do not fit.
func (s *sender) followShort(small []*bpf.BufferRecord) error {
	now := map[uint32]uint64{}
	s.short.quiet++
	for _, r := range small {
		if _, known := now[r.Netns]; known {
			continue
		}
		n, err := discards(r.Tgid)
		if err != nil {
			continue // the process has ended, or its /proc cannot be read
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

// discardsIn adds up the counts in the kernel's tables. For IPv4 the table has a line of names and a line of figures
// for each protocol. For IPv6 the table has one line for each figure.
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
			n, _ = strconv.ParseUint(fields[at], 10, 64) // the kernel writes figures only
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
