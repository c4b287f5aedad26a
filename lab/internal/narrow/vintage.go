package narrow

import (
	"errors"
	"io/fs"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/routed"
)

// Congestion controls of the senders.
const (
	congestionToday  = "cubic"
	congestionOf2001 = "reno"
)

// settingsOf2001 has the settings below net/ipv4 with which today's TCP loses and waits like that of 2001. It has no
// selective acknowledgements, no timestamps, no recovery by time (RACK), no tail probes and no F-RTO, and waits a second
// before it sends again (RFC 2988).
func settingsOf2001() map[string]string {
	return map[string]string{
		"tcp_sack": "0", "tcp_timestamps": "0", "tcp_recovery": "0", "tcp_early_retrans": "0", "tcp_frto": "0",
		rtoSetting: "1000000",
	}
}

// rtoSetting exists since Linux 6.11. Without it TCP waits 0.2 s at least.
const rtoSetting = "tcp_rto_min_us"

// age gives the sending hosts of a site the TCP of 2001, before they have sockets.
func age(s *routed.Site) error {
	for _, n := range []*testbed.NetNS{s.Source, s.Others} {
		for setting, value := range settingsOf2001() {
			err := n.Sysctl("net/ipv4/"+setting, value)
			if setting == rtoSetting && errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// congestion returns the congestion control of the transfer and of the connection beside it.
func (t Transfer) congestion() string {
	if t.TCPOf2001 {
		return congestionOf2001
	}
	return congestionToday
}
