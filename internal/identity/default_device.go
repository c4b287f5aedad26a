package identity

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// routeRejects is the flag RTF_REJECT in /proc/net: no packet leaves by such a route.
const routeRejects = 0x200

// DefaultDevice returns the network device of this process's default route, the route of IPv4 if
// there is one. It is "" without a default route. Proc is the mount point of procfs, "" = /proc.
func DefaultDevice(proc string) string {
	if proc == "" {
		proc = "/proc"
	}
	const (
		destination, flags, metric, mask = 1, 3, 6, 7 // columns of route
		prefix, bits, metric6, flags6    = 0, 1, 5, 8 // columns of ipv6_route
	)
	device := leastMetric(filepath.Join(proc, "self/net/route"), 8, func(f []string) (string, string, string, bool) {
		return f[0], f[metric], f[flags], f[destination] == "00000000" && f[mask] == "00000000"
	}, 10)
	if device != "" {
		return device
	}
	return leastMetric(filepath.Join(proc, "self/net/ipv6_route"), 10, func(f []string) (string, string, string, bool) {
		return f[9], f[metric6], f[flags6], f[bits] == "00" && strings.Trim(f[prefix], "0") == ""
	}, 16)
}

// leastMetric returns the device of the default route with the least metric in a table of routes. It skips rows
// with fewer columns than that number. Route reads a row's device, metric, flags (in hex), and
// whether it is a default route. Base is the number base of metrics.
func leastMetric(path string, columns int, route func([]string) (device, metric, flags string, isDefault bool), base int) (found string) {
	file, err := os.Open(path)
	if err != nil {
		return "" // a kernel without that protocol has no such table
	}
	defer file.Close()
	least := uint64(0)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < columns {
			continue
		}
		device, metricText, flagsText, isDefault := route(fields)
		metric, err := strconv.ParseUint(metricText, base, 64)
		flags, flagsErr := strconv.ParseUint(flagsText, 16, 64)
		if !isDefault || err != nil || flagsErr != nil || flags&routeRejects != 0 || device == "lo" {
			continue
		}
		if found == "" || metric < least {
			found, least = device, metric
		}
	}
	return found
}

// DefaultDevice returns the network device of the default route, "" where there is none.
func (r *Resolver) DefaultDevice() string { return DefaultDevice(r.procRoot) }
