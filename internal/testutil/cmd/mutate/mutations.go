package main

// mutation is one fault that mutate puts into the code.
type mutation struct {
	name     string
	file     string
	old, new string // old occurs once in the file
	pkg, run string // the test that is expected to find it; otherwise `make test` decides
}

const e2e, pureDaemon, purePlan = "./internal/e2e", "./internal/daemon", "./internal/plan"

var mutations = []mutation{
	{
		"a socket's own rate charges 3% less", "bpf/charge.h",
		"at += x->wire_bytes * NN_NSEC_PER_SEC / rate;", "at += x->wire_bytes * 97 / 100 * NN_NSEC_PER_SEC / rate;",
		e2e, "^(TestSocketOption|TestSocketOptionFromFirstByte)$",
	},
	{
		"a clock charges 3% less", "bpf/hop.h",
		"nn_class_charge(c, k, weight, cost, rate, burst_bytes);", "nn_class_charge(c, k, weight, cost * 97 / 100, rate, burst_bytes);",
		e2e, "^(TestLink|TestUpUDP)$",
	},
	{
		"received traffic is counted 3% too small", "bpf/shape_packet.h",
		"__u64 bytes = skb->len - link_header;", "__u64 bytes = (skb->len - link_header) * 97ULL / 100;",
		e2e, "^TestDownTCP$",
	},
	{
		"the limit of both directions together does not hold for what is sent", "bpf/charge.h",
		"d <= NN_TOTAL; d += NN_TOTAL - NN_UP", "d < NN_TOTAL; d += NN_TOTAL - NN_UP",
		e2e, "^TestTotal$",
	},
	{
		"a user's own limit is forgotten beside the administrator's", "bpf/ceiling.h",
		"n->limits[NN_OWNER_USER][direction].ceiling_bytes_per_sec);",
		"n->limits[NN_OWNER_ADMIN][direction].ceiling_bytes_per_sec);",
		e2e, "^TestUserLimitsOwnProcess$",
	},
	{
		"traffic of the machine to itself is limited unasked", "bpf/charge.h",
		"if (x->loopback && !(n->flags & NN_NODE_LOOPBACK))", "if (x->loopback && !n->flags)",
		e2e, "^TestLoopback$",
	},
	{
		"guarantees are ignored", "bpf/charge.h",
		"if (guarantee) {", "if (guarantee == 1) {",
		e2e, "^TestGuarantee$",
	},
	{
		"weights are ignored", "bpf/charge.h",
		"x->weight = n->weight;", "x->weight = NN_WEIGHT_DEFAULT;",
		e2e, "^TestFair$",
	},
	{
		"children do not inherit a limit", "bpf/netnice.bpf.c",
		"nn_task_forked(parent, child);", "(void)parent;",
		e2e, "^(TestFamilySharesLimit|TestForksWhileLimitIsSet)$",
	},
	{
		"open connections are not adopted", "bpf/adopt.h",
		"return skc->skc_state != TCP_TIME_WAIT &&", "return skc->skc_state == TCP_TIME_WAIT &&",
		e2e, "^TestChangeInMidTransfer$",
	},
	{
		"datagrams over IPv6 are left out of limits on destinations", "bpf/netnice.bpf.c",
		"int nn_sendmsg6(struct bpf_sock_addr *ctx)\n{\n\tnn_datagrams_to6(ctx);", "int nn_sendmsg6(struct bpf_sock_addr *ctx)\n{",
		e2e, "^(TestSetToReceivesAndDatagrams|TestSetToEachPeerBySocket)$",
	},
	{
		"a limit is not lifted", "internal/daemon/reconcile.go",
		"if err := d.kernel.RemoveNode(n.id); err != nil {\n\t\treturn fmt.Errorf(\"lift", "if err := error(nil); err != nil {\n\t\treturn fmt.Errorf(\"lift",
		pureDaemon, "^TestSetChangeLift$",
	},
	{
		"limits are loosened before others are tightened", "internal/plan/difference.go",
		"return slices.Concat(steps, loosen, remove)", "return slices.Concat(loosen, remove, steps)",
		purePlan, "^TestStepsAllowNoMore$",
	},
	{
		"a node with another DSCP in the kernel is not set again", "internal/plan/difference.go",
		"s.StartBoottimeNS, s.Parent, s.BacklogNS = 0, 0, 0", "s.StartBoottimeNS, s.Parent, s.BacklogNS, s.DSCP = 0, 0, 0, 0",
		purePlan, "^TestEachFieldIsCompared$",
	},
	{
		"destinations keep the numbers of former limits", "internal/source/destinations/source.go",
		"\ttx.NoteAssigned()\n\ts.Outdate()\n", "\ttx.NoteAssigned()\n",
		pureDaemon, "^TestIncrementsEqualTheWhole$",
	},
	{
		"a node that has replaced another subject's is not replaced again", "internal/daemon/reconcile.go",
		" && !plan.Clash(have, spec) {", " {",
		pureDaemon, "^TestKernelIsPutRightAtOnce$",
	},
	{
		"ended processes use their user's grant", "internal/source/reservations/grant.go",
		"return node == butNode || ended[node]", "return node == butNode || ended[0]",
		"./internal/source/reservations", "^TestGrant$",
	},
	{
		"nodes of peers never end", "internal/source/peers/source.go",
		"!isRequested || s.opts.Now().Sub(last.at) > idleTime", "!isRequested",
		"./internal/source/peers", "^TestIdlePeers$",
	},
	{
		"rights let everybody pass", "internal/auth/auth.go",
		"return r.Who == Everybody || r.Who == Owners && t.UID == a.UID", "return r.Who != 0 || t.UID == a.UID || true",
		"./internal/auth", ".",
	},
	{
		"rules for a user hold for everybody", "internal/rules/match.go",
		"case !anyOf(r.users, func(uid uint32) bool { return uid == f.UID() }):", "case !anyOf(r.users, func(uint32) bool { return true }):",
		"./internal/rules", ".",
	},
	{
		"IPv4 prefixes have the length of IPv6 ones", "internal/enforce/pacing/destinations.go",
		"bits += 96", "bits += 0",
		e2e, "^TestSetToDestinations$",
	},
	{
		"prefixes of bits are those of 1024", "internal/units/rate.go",
		"return scale(prefix, 1000, big.NewRat(1, 8)), \"\", \"\"", "return scale(prefix, 1024, big.NewRat(1, 8)), \"\", \"\"",
		"./internal/units", ".",
	},
	{
		"what is wanted is not written down", "internal/desired/file.go",
		"case len(changes) == 0:\n", "case len(changes) == 0 || all.Count > 0:\n",
		pureDaemon, "^(TestPersist|TestRestartAdopts)$",
	},
	{
		"headers of a large datagram's segments are free", "bpf/datagram.h",
		"return (__u64)(skb->gso_segs - 1) * (header + 8);", "return 0;",
		e2e, "^TestGeneratedKept$",
	},
	{
		"the kernel's answers to another machine are free", "bpf/datagram.h",
		"if (answered)\n\t\tx.wire_bytes", "if (false)\n\t\tx.wire_bytes",
		e2e, "^TestEvadeByAnswers$",
	},
	{
		"a held chunk leaves 1 s too early", "bpf/hop.h",
		"#define NN_HOLD_NS 100000000ULL", "#define NN_HOLD_NS 1100000000ULL",
		e2e, "^(TestShortConnections|TestSetAndUnsetAgain|TestNewcomer)$",
	},
	{
		"@RATE of a later command is dropped", "internal/shell/rewrite.go",
		"done = at.end\n", "done = at.end\n\t\tbreak\n",
		"./internal/shell", "^TestRewrite$",
	},
}
