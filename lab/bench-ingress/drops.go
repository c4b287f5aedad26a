package ingress

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/netnice/netnice/internal/testbed"
)

// refusals returns the kernel's counters of arrived segments that TCP did not take, for lack of window or of memory.
// Some kernels lack the newer ones.
func refusals() []string {
	return []string{"TCPRcvQDrop", "TCPOFODrop", "TCPZeroWindowDrop", "TCPBacklogDrop", "BeyondWindow"}
}

// refused returns the number of segments that TCP of the namespace has refused so far.
func refused(n *testbed.NetNS) (uint64, error) {
	var text []byte
	err := n.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/netstat")
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read TCP's counters: %w", err)
	}
	return sumCounters(string(text), "TcpExt:", refusals())
}

// deviceDropped returns the number of packets that the namespace's device has dropped so far. Neither the limiter
// nor TCP causes these drops. The machine is then so busy that the queue of arrived packets
// (net.core.netdev_max_backlog) is full.
func deviceDropped(n *testbed.NetNS) (uint64, error) {
	link, err := n.Netlink().LinkByName(testbed.Device)
	if err != nil {
		return 0, fmt.Errorf("find %s: %w", testbed.Device, err)
	}
	if s := link.Attrs().Statistics; s != nil {
		return s.RxDropped, nil
	}
	return 0, nil
}

// sumCounters adds up counters of a /proc/net/netstat: each group has a line of
// names and then one of values.
func sumCounters(text, group string, names []string) (sum uint64, err error) {
	var heads []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] != group:
		case heads == nil:
			heads = fields
		default:
			for i, value := range fields {
				if i == 0 || i >= len(heads) || !slices.Contains(names, heads[i]) {
					continue
				}
				n, err := strconv.ParseUint(value, 10, 64)
				if err != nil {
					return 0, fmt.Errorf("read counter %s: %w", heads[i], err)
				}
				sum += n
			}
			return sum, nil
		}
	}
	return 0, fmt.Errorf("read TCP's counters: no %s", group)
}
