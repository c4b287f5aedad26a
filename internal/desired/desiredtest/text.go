// Package desiredtest has state files for tests.
package desiredtest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/desired"
)

// Whole is a file of version 9 with a record of each kind, and changes behind them.
const Whole = `{"version":9,"boot_id":"boot","next_id":21,"nodes":11}
{"node":{"id":1,"subject":{"kind":"host"},"kind":8,"key":0,"uid":0,"name":"host","admin":{"up_bytes_per_sec":12500000},"user":{},"since":"2026-11-22T10:11:12.5+01:00"}}
{"node":{"id":2,"subject":{"kind":"user","id":"4242"},"kind":5,"key":4242,"uid":4242,"name":"4242","admin":{"total_bytes_per_sec":2500000,"grant":{"link":"eth0","part_ppm":200000}},"user":{"up_bytes_per_sec":100000,"weight":50},"user_uid":4242,"since":"2026-11-22T10:11:12Z","marker":true}}
{"node":{"id":3,"subject":{"kind":"link","id":"eth0"},"kind":7,"key":17299,"uid":0,"name":"eth0","admin":{"up_bytes_per_sec":4750000,"line":{"overhead_bytes":30,"least_bytes":64,"atm":true}},"user":{},"since":"2026-11-22T10:11:12Z"}}
{"node":{"id":4,"subject":{"kind":"unit","id":"cron.service"},"kind":3,"key":0,"uid":0,"name":"cron.service","admin":{"down_bytes_per_sec":300000,"until_reboot":true},"user":{},"since":"2026-11-22T10:11:12Z"}}
{"node":{"id":5,"subject":{"kind":"pid","id":"4711"},"kind":2,"key":4711,"start_boottime_ns":10000000000,"uid":4242,"name":"rsync","admin":{"reserve":{"link":"eth0","period_ns":10000000,"slice_ns":2000000,"extra":true,"until_unix_ns":1900000000000000000}},"user":{"up_bytes_per_sec":1000000,"burst_ns":20000000,"loopback":true},"user_uid":4242,"since":"2026-11-22T10:11:12Z","group":"night"}}
{"node":{"id":6,"subject":{"kind":"group","id":"night"},"kind":2,"key":0,"start_boottime_ns":7340000000,"uid":0,"name":"night","admin":{"total_bytes_per_sec":500000,"input_meter_off":true},"user":{},"since":"2026-11-22T10:11:12Z"}}
{"node":{"id":7,"subject":{"kind":"rule","id":"scp"},"kind":2,"key":0,"start_boottime_ns":9340000000,"uid":4242,"name":"all of scp","admin":{},"user":{},"since":"2026-11-22T10:11:12Z","rules":{"owners":[{"wish":{"up_bytes_per_sec":1000000,"min_bytes_per_sec":1000},"from":[{"name":"scp","file":"/etc/netnice/netnice.toml","line":3,"key":"k"},{},{}],"rules":[{"name":"scp","file":"/etc/netnice/netnice.toml","line":3,"key":"k"}],"facts":{"Exe":"/usr/bin/scp","Comm":"scp","User":4242,"CommandLine":"scp a b:","Group":"/user.slice","ParentExe":"/bin/bash","ParentComm":"bash"}},{"wish":{},"from":[{},{},{}]}],"shared":"k","outer":6}}}
{"node":{"id":8,"subject":{"kind":"to","id":"example.com:443/tcp@user:4242"},"kind":6,"key":81723461239,"uid":4242,"name":"4242","admin":{"up_bytes_per_sec":1000000},"user":{},"since":"2026-11-22T10:11:12Z","to":{"scope":2,"names":{"example.com":["192.0.2.7","2001:db8::7"]}}}}
{"node":{"id":9,"subject":{"kind":"cgroup","id":"/netnice/run-4711"},"kind":3,"key":5012,"uid":4242,"name":"rsync","dir":"/sys/fs/cgroup/netnice/run-4711","admin":{},"user":{"up_bytes_per_sec":9000},"user_uid":4242,"since":"2026-11-22T10:11:12Z","scope":{"pid":4711,"start_boottime_ns":10000000000,"uid":4242,"made":true,"origin":"/user.slice"}}}
{"node":{"id":10,"subject":{"kind":"container","id":"web"},"kind":3,"key":0,"uid":0,"name":"web","admin":{"min_down_bytes_per_sec":4000},"user":{},"since":"2026-11-22T10:11:12Z"}}
{"node":{"id":11,"subject":{"kind":"to","id":"203.0.113.0/24,!203.0.113.9/32:80-90/each"},"kind":6,"key":7,"uid":0,"name":"","admin":{"up_bytes_per_sec":9223372036854775807,"dscp_and_1":9},"user":{},"since":"2026-11-22T10:11:12Z","to":{}}}
{"next_id":22,"node":{"id":1,"subject":{"kind":"host"},"kind":8,"key":0,"uid":0,"name":"host","admin":{"up_bytes_per_sec":25000000},"user":{},"since":"2026-11-22T10:11:12.5+01:00"}}
{"next_id":22,"gone":4}
`

// Spoilt maps nodes that no daemon writes to a part of the error for each.
var Spoilt = map[string]string{
	`"kind":8,"subject":{"kind":"user","id":"4242"},"admin":{"up_bytes_per_sec":1}`:                                                           "is no subject of the kind",
	`"kind":5,"subject":{"kind":"host"},"admin":{"up_bytes_per_sec":1}`:                                                                       "is no subject of the kind",
	`"kind":2,"subject":{"kind":"cgroup","id":"/a"},"admin":{"up_bytes_per_sec":1}`:                                                           "is no subject of the kind",
	`"kind":6,"subject":{"kind":"to","id":"any"},"admin":{"up_bytes_per_sec":1}`:                                                              "does not say which part",
	`"kind":6,"subject":{"kind":"to","id":"300.0.0.1"},"to":{},"admin":{"up_bytes_per_sec":1}`:                                                "300.0.0.1",
	`"kind":2,"subject":{"kind":"pid","id":"7"},"key":7,"dir":"/etc","admin":{"up_bytes_per_sec":1}`:                                          "has no folder",
	`"kind":1,"subject":{"kind":"pid","id":"7"},"admin":{"up_bytes_per_sec":1}`:                                                               "the kind 1 is unknown",
	`"kind":8,"subject":{"kind":"host"},"admin":{"loopback":true}`:                                                                            "nobody wants anything",
	`"kind":8,"subject":{"kind":"host"},"rules":{"owners":[]}`:                                                                                "nobody wants anything",
	`"kind":8,"subject":{"kind":"host"},"admin":{"up_bytes_per_sec":1,"weight":10001}`:                                                        "weight 10001",
	`"kind":8,"subject":{"kind":"host"},"admin":{"up_bytes_per_sec":1,"burst_ns":60000000001}`:                                                "burst",
	`"kind":8,"subject":{"kind":"host"},"admin":{"dscp_and_1":65}`:                                                                            "DSCP 64",
	`"kind":7,"subject":{"kind":"link","id":"eth0"},"admin":{"up_bytes_per_sec":1,"line":{"least_bytes":1501}}`:                               "1501 bytes",
	`"kind":5,"subject":{"kind":"user","id":"1"},"admin":{"reserve":{"link":"eth0","period_ns":0,"slice_ns":5}}`:                              "slice of 5 ns in each 0 ns",
	`"kind":5,"subject":{"kind":"user","id":"1"},"admin":{"reserve":{"link":"eth0","period_ns":1000000,"slice_ns":1000001}}`:                  "slice of 1000001 ns",
	`"kind":5,"subject":{"kind":"user","id":"1"},"admin":{"grant":{"link":"eth0","part_ppm":1000001}}`:                                        "grant of 1000001",
	`"kind":5,"subject":{"kind":"user","id":"1"},"rules":{"owners":[{"wish":{"weight":4294967295},"from":[{},{},{}],"rules":[{"key":"k"}]}]}`: "weight 4294967295",
}

// SpoiltText returns a file with one of these nodes.
func SpoiltText(node string) []byte {
	return []byte(`{"version":9,"boot_id":"boot","next_id":5,"nodes":1}` + "\n" + `{"node":{"id":1,` + node + "}}\n")
}

// Text returns a file of these records, as File writes it whole.
func Text(t testing.TB, bootID string, nextID uint32, records ...desired.Record) []byte {
	t.Helper()
	text, err := desired.Text(bootID, desired.Content{NextID: nextID, Count: len(records), Records: slices.Values(records)})
	require.NoError(t, err)
	return text
}
