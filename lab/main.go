// Command lab runs the experiments of the papers, the benches, and the tools for both, each as a subcommand. All but
// verdicts need root, and all that measure netnice need its program ($NETNICE, or bin/netnice).
//
//	go run ./lab
//	go run ./lab e02 -quick
//	go run ./lab bench egress -only 'netnice 1MB/s x16'
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/internal/testbed"
	adapt "github.com/netnice/netnice/lab/bench-adapt"
	calls "github.com/netnice/netnice/lab/bench-calls"
	cpu "github.com/netnice/netnice/lab/bench-cpu"
	delay "github.com/netnice/netnice/lab/bench-delay"
	egress "github.com/netnice/netnice/lab/bench-egress"
	ingress "github.com/netnice/netnice/lab/bench-ingress"
	overhead "github.com/netnice/netnice/lab/bench-overhead"
	probe "github.com/netnice/netnice/lab/bench-probe"
	reserve "github.com/netnice/netnice/lab/bench-reserve"
	scale "github.com/netnice/netnice/lab/bench-scale"
	share "github.com/netnice/netnice/lab/bench-share"
	udp "github.com/netnice/netnice/lab/bench-udp"
	e01 "github.com/netnice/netnice/lab/e01-overhead"
	e02 "github.com/netnice/netnice/lab/e02-change"
	e03 "github.com/netnice/netnice/lab/e03-input"
	e04 "github.com/netnice/netnice/lab/e04-fair-inetd"
	e05 "github.com/netnice/netnice/lab/e05-hub"
	e06 "github.com/netnice/netnice/lab/e06-hub-two-servers"
	e07 "github.com/netnice/netnice/lab/e07-switch"
	e08 "github.com/netnice/netnice/lab/e08-smooth"
	e09 "github.com/netnice/netnice/lab/e09-sockets"
	e10 "github.com/netnice/netnice/lab/e10-process"
	e11 "github.com/netnice/netnice/lab/e11-uplink"
	e12 "github.com/netnice/netnice/lab/e12-throughput"
	e13 "github.com/netnice/netnice/lab/e13-latency"
	e14 "github.com/netnice/netnice/lab/e14-path"
	e15 "github.com/netnice/netnice/lab/e15-path-shared"
	e16 "github.com/netnice/netnice/lab/e16-tcp-path"
	e17 "github.com/netnice/netnice/lab/e17-tcp-paths"
	e18 "github.com/netnice/netnice/lab/e18-slices"
	e19 "github.com/netnice/netnice/lab/e19-reservations"
	e20 "github.com/netnice/netnice/lab/e20-hog"
	e21 "github.com/netnice/netnice/lab/e21-share-per-rate"
	e22 "github.com/netnice/netnice/lab/e22-senders"
	e23 "github.com/netnice/netnice/lab/e23-power"
	e24 "github.com/netnice/netnice/lab/e24-slots"
	e26 "github.com/netnice/netnice/lab/e26-throughput"
	e27 "github.com/netnice/netnice/lab/e27-packet-sizes"
	e28 "github.com/netnice/netnice/lab/e28-path-in-time"
	e29 "github.com/netnice/netnice/lab/e29-slow-lines"
	e30 "github.com/netnice/netnice/lab/e30-whole-file"
	"github.com/netnice/netnice/lab/internal/datagram"
	"github.com/netnice/netnice/lab/internal/load"
	"github.com/netnice/netnice/lab/traffic"
	"github.com/netnice/netnice/lab/verdicts"
)

// command is an experiment, a bench or a tool.
type command struct {
	folder string // also the name that its flags, messages and files have
	claim  string // a line of help: the paper's claim, or what the command does
	// main parses the arguments by the flags, which have the folder's name, and returns the exit code.
	main func(flags *flag.FlagSet, args []string) (exitCode int)
}

func experiments() []command {
	return []command{
		{"e01-overhead", "netnice, Table 1: a file transfer without a limit is as fast as without netnice", e01.Main},
		{"e02-change", "netnice, Figure 3: a running sender drops at once to its limit, and stays there", e02.Main},
		{"e03-input", "netnice, Figure 4: so does a running download, with more noise", e03.Main},
		{"e04-fair-inetd", "netnice, Figure 5: three FTP sessions of fair-inetd have equal parts, as each begins and ends", e04.Main},
		{"e05-hub", "netnice, Figure 6: echo of a typed byte beside downloads, on a hub: 23.05 ms -> 0.49 by fair-inetd", e05.Main},
		{"e06-hub-two-servers", "netnice, Figure 7: the same with two servers: 9.19 ms -> 0.37", e06.Main},
		{"e07-switch", "netnice, Figure 8: the same behind a switch: 49.16 ms -> 0.48", e07.Main},
		{"e08-smooth", "nlimit, Figure 4: a connection that fills its link is bursty, a limited one is almost constant", e08.Main},
		{"e09-sockets", "nlimit, Figure 5: sockets of 3 KB/s are right on average, and bursty in sum", e09.Main},
		{"e10-process", "nlimit, Figure 6: four connections of one process keep to 12 KB/s together", e10.Main},
		{"e11-uplink", "nlimit, Figure 7: echo beside senders on a full uplink grows with them, and is near its least if limited", e11.Main},
		{"e12-throughput", "nlimit, Table 1: three programs have 0.39 to 0.59 of their rates without the mechanism", e12.Main},
		{"e13-latency", "nlimit, Table 2: the round trip with the mechanism is 0.58 of that without", e13.Main},
		{"e14-path", "topp, Table I: UDP through 28 kbit/s arrives faster when it is paced: 24.56 -> 25.58 kbit/s", e14.Main},
		{"e15-path-shared", "topp, Figure 5: beside TCP less than 1% of it arrives, and 67% when it is paced", e15.Main},
		{"e16-tcp-path", "topp, Figures 8 and 9: TCP beside TCP takes 0.997 of the time, and 0.965 of the packets", e16.Main},
		{"e17-tcp-paths", "topp, Figures 10 to 12: if both are paced 0.67 and 0.85, with fair shares", e17.Main},
		{"e18-slices", "Nemesis, Figure 4: 2.4 ms in each 50 ms are two packets, and then a pause", e18.Main},
		{"e19-reservations", "Nemesis, Figure 5: three connections have the reserved rates as each begins", e19.Main},
		{"e20-hog", "Nemesis, Figure 6: a sender's rate falls in proportion to another program's share of the processor", e20.Main},
		{"e21-share-per-rate", "Nemesis, Figure 7: the share of a processor that a rate takes is linear", e21.Main},
		{"e22-senders", "Nemesis, Table 1: three senders have their rates beside a program that wants the processor", e22.Main},
		{"e23-power", "tender, Figure 4: a program's rate is linear in its per cent of the processor", e23.Main},
		{"e24-slots", "tender, Figures 5 to 12: packets come with gaps of whole slots, more of them the smaller the share", e24.Main},
		{"e26-throughput", "Nemesis, text: TCP has 0.72 of its rate on plain Linux", e26.Main},
		{"e27-packet-sizes", "tender, Table 3: packets within 100 us of another are short ones", e27.Main},
		{"e28-path-in-time", "topp, Figures 6 and 7: UDP is at its least rate most of the time, as TCP takes more and more", e28.Main},
		{"e29-slow-lines", "nlimit, section 5.3: a limit gains very much on a cable modem, less on DSL, nothing on a LAN", e29.Main},
		{"e30-whole-file", "topp: a file through 28 kbit/s takes 0.960 of the time when it is paced; here it arrives whole", e30.Main},
	}
}

func benches() []command {
	return []command{
		{"bench-adapt", "UDP through bottlenecks, as it is and under netnice adapt, alone and beside TCP", adapt.Main},
		{"bench-calls", "what others' socket options, sockets, fork and exec pay, in each state", calls.Main},
		{"bench-cpu", "shares of the processors, beside a quota, cpulimit and nice", cpu.Main},
		{"bench-delay", "how long a question by UDP and a small answer by HTTP take beside what uses up their limit", delay.Main},
		{"bench-egress", "sending under a limit, beside HTB: goodput, fairness, retransmits, round trips, CPU", egress.Main},
		{"bench-ingress", "receiving under a limit, beside an ifb with HTB and policing: the same, and added delay", ingress.Main},
		{"bench-overhead", "what traffic without a limit pays, without and with limits elsewhere", overhead.Main},
		{"bench-probe", "what netnice probe says of paths of 28 kbit/s to 1 Gbit/s, beside none to 70% of others' traffic", probe.Main},
		{"bench-reserve", "guarantees and reservations of a link beside 512 connections and a flood", reserve.Main},
		{"bench-scale", "10,000 sockets, 1,000 processes, 1,000 limits", scale.Main},
		{"bench-share", "shares of 2 to 100 programs of a limit and of a line, beside HTB", share.Main},
		{"bench-udp", "UDP, sent and received, alone and beside TCP: rate, gaps, losses, CPU", udp.Main},
	}
}

func tools() []command {
	return []command{
		{"traffic", "senders, a receiver, and your commands in between: to look at a limit", traffic.Main},
		{"verdicts", "judge what the experiments wrote, and put the table into lab/README.md", verdicts.Main},
	}
}

func main() {
	runRole()
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// runRole turns the process into a sender, a receiver, a load or the like if a command started it as one, and then
// never returns. Commands start this program again for that.
func runRole() {
	testbed.MaybeRunTraffic()
	datagram.MaybeRun()
	load.MaybeRun()
	delay.MaybeRun()
	scale.MaybeJoin()
}

// execute runs a command line, and returns its exit code.
func execute(args []string, stdout, stderr io.Writer) (exitCode int) {
	root := &cobra.Command{
		Use:   "lab",
		Short: "Run experiments and benches on real traffic",
		Long: `Run the experiments of the netnice, nlimit, topp, Nemesis and tender papers, and benches,
on real traffic, in network namespaces of their own. They need root.

An experiment's number is enough: lab e02 -quick. Flags are those of "lab e02 -h".
lab/README.md says what the figures mean.`,
		Args: cobra.NoArgs, SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	bench := &cobra.Command{
		Use: "bench", Short: "Run a bench: " + names(benches()), Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, c := range experiments() {
		number, _, _ := strings.Cut(c.folder, "-")
		root.AddCommand(c.under(c.folder, stderr, &exitCode, number))
	}
	for _, c := range benches() {
		bench.AddCommand(c.under(strings.TrimPrefix(c.folder, "bench-"), stderr, &exitCode))
	}
	for _, c := range tools() {
		root.AddCommand(c.under(c.folder, stderr, &exitCode))
	}
	root.AddCommand(bench)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetArgs(args)
	root.SetOut(stdout)
	if err := root.Execute(); err != nil {
		fmt.Fprintf(stderr, "lab: %v\n", err)
		return 2
	}
	return exitCode
}

// under returns the command by that name. It parses its flags itself, and sets the exit code.
func (c command) under(name string, stderr io.Writer, exitCode *int, aliases ...string) *cobra.Command {
	run := func(args []string) {
		flags := flag.NewFlagSet(c.folder, flag.ContinueOnError)
		flags.SetOutput(stderr)
		*exitCode = c.main(flags, args)
	}
	cmd := &cobra.Command{
		Use: name, Aliases: aliases, Short: c.claim, DisableFlagParsing: true,
		Run: func(_ *cobra.Command, args []string) { run(args) },
	}
	cmd.SetHelpFunc(func(*cobra.Command, []string) { run([]string{"-h"}) }) // of lab help NAME
	return cmd
}

// names lists the names of benches, as they follow lab bench.
func names(list []command) string {
	var all []string
	for _, c := range list {
		all = append(all, strings.TrimPrefix(c.folder, "bench-"))
	}
	return strings.Join(all, ", ")
}
