package trafficgen

// Way is a known evasion of a limit that generated programs do not use.
type Way struct {
	Name string // its name in EVASION of netnice(1)
	Not  string // the action that no program performs
}

// LeftOut holds all known evasions. A test compares their names with EVASION.
var LeftOut = []Way{
	{"Another network namespace", "configure the devices of its namespace, but for lo"},
	{"Other protocols", "send by packet sockets or AF_XDP; receive by ICMP and raw sockets, or by UDP-Lite sockets that send nothing"},
	{"Multicast and broadcast", "receive what is sent to a group"},
	{"Somebody else sends", "have a server, cron or D-Bus send for it"},
	{"A descriptor is passed", "have a process that is not limited send by its sockets"},
	{"Orphans from before the limit", "be an orphan as its process is limited"},
	{"Another cgroup", "move out of the limited cgroup"},
	{"Another user", "change its user where the user is limited"},
	{"Handshakes and acknowledgements", "receive without a limit on that"},
	{"A tunnel's port", "send to a tunnel by a group over IPv4"},
	{"Source routes", "send to a limited destination by a routing header"},
	{"Sockets without memory for options", "accept connections by such sockets"},
	{"Files of io_uring alone", "close the descriptor of a ring's socket before Linux 5.17"},
	{"Storms of connections", "count as an escape what connections that are closed at once send early: 0.3 s of the limit"},
	{"The kernel", "have threads of the kernel, a virtual machine, or a TUN device that root gave the program, send"},
	{"Privileges", "use CAP_BPF, or CAP_NET_ADMIN but for TCP_REPAIR"},
}
