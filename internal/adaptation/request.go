package adaptation

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/netnice/netnice/api"
)

const (
	defaultShare = 500_000 // ppm
	leastShare   = 100_000
	defaultLeast = 1000 // bytes/s
	// defaultBacklog bounds how long datagrams wait for a path, since their senders have no use for late packets. The
	// kernel side drops datagrams that would wait longer.
	defaultBacklog            = uint64(time.Second)
	leastBacklog, mostBacklog = uint64(10 * time.Millisecond), uint64(time.Minute)
)

// settings has the parameters by which a path is followed.
type settings struct {
	SharePPM      uint32 `json:"share_ppm"`
	TCP           bool   `json:"tcp,omitempty"`
	Start         uint64 `json:"start_bytes_per_sec,omitempty"`
	Least         uint64 `json:"least_bytes_per_sec"`
	Most          uint64 `json:"most_bytes_per_sec,omitempty"`
	ReflectorPort uint16 `json:"reflector_port,omitempty"`
	BacklogNS     uint64 `json:"backlog_ns"` // since version 4 of the file
}

func settingsOf(req *api.AdaptRequest) settings {
	return settings{
		SharePPM: req.SharePPM, TCP: req.TCP, Start: req.StartBytesPerSec,
		Least: req.LeastBytesPerSec, Most: req.MostBytesPerSec, ReflectorPort: req.ReflectorPort,
		BacklogNS: req.BacklogNS,
	}
}

func bad(format string, args ...any) error {
	return &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf(format, args...), Hint: "such as: netnice adapt 192.0.2.7 --share 50%; netnice adapt 192.0.2.7 off"}
}

// check refuses a request that makes no sense, and fills in missing values.
func check(req *api.AdaptRequest) error {
	if req.Host == "" || len(req.Host) > 253 {
		return bad("no host is named")
	}
	if req.Off {
		return nil
	}
	fill(req)
	switch {
	case req.SharePPM < leastShare || req.SharePPM > 1_000_000:
		return bad("a share of %g%% cannot be kept: write 10%% to 100%%", float64(req.SharePPM)/10_000)
	case req.MostBytesPerSec != 0 && req.MostBytesPerSec < req.LeastBytesPerSec:
		return bad("at most %d bytes/s is less than at least %d", req.MostBytesPerSec, req.LeastBytesPerSec)
	case req.BacklogNS < leastBacklog || req.BacklogNS > mostBacklog:
		return bad("a backlog of %v cannot be kept: write 10ms to 1m", time.Duration(min(req.BacklogNS, 1<<62)))
	}
	return nil
}

// fill replaces missing values by the defaults.
func fill(req *api.AdaptRequest) {
	if req.SharePPM == 0 {
		req.SharePPM = defaultShare
	}
	if req.BacklogNS == 0 {
		req.BacklogNS = defaultBacklog
	}
	if req.LeastBytesPerSec == 0 {
		req.LeastBytesPerSec = defaultLeast
		if req.MostBytesPerSec != 0 {
			req.LeastBytesPerSec = min(defaultLeast, req.MostBytesPerSec)
		}
	}
}

// addressesOf returns the addresses of a host, by the resolver of the machine.
func (t *Table) addressesOf(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		a = a.Unmap()
		if a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() {
			return nil, bad("%s is no address of another host", host)
		}
		return []netip.Addr{a}, nil
	}
	list, err := t.host.LookUp(ctx, host)
	if err != nil {
		return nil, err
	}
	return list[:min(len(list), mostAddresses)], nil
}

// full refuses a host or area beyond the number that can be followed.
func full(who string, most int) error {
	return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("%s limits already, the most there may be: %d", who, most), Hint: "end some first: netnice adapt"}
}
