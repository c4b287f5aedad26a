package verdict

import (
	"fmt"
	"math"

	"github.com/tidwall/gjson"
)

var (
	low  = math.Inf(-1)
	high = math.Inf(1)
)

// single is the reason why a byte waits longer during a limited download than in the paper.
const single = "a byte that comes at any time waits, there and back, for the packet that is just on its way: 1.2 ms each, 42% of the time; " +
	"beside half of the rate it waits half as long (the next row), and beside nobody 0.3 to 0.4 ms. The paper's byte and its senders went by one clock of 100 Hz"

// criteria returns all criteria. A bound is changed before the run that it judges, never after.
func criteria() []Criterion {
	list := []Criterion{
		{"e01-overhead", "E1", "file over lo, bytes per processor second, with netnice over without", "1.02 (bytes/s)", 0.97, high, "", at("loopback.per_cpu_second_with_over_without.median")},
		{"e01-overhead", "E1", "file over veth, bytes per processor second, with netnice over without", "", 0.97, high, "", at("veth.per_cpu_second_with_over_without.median")},
		{"e02-change", "E2", "sent after the limit, of it", "flat at it", 0.99, 1.01, "", at("#.after_over_limit")},
		{"e02-change", "E2", "in force after the command's start, ms", "at once", 0, 200, "", scaled("#.settled_after_ns", 1e-6)},
		{"e02-change", "E2", "fullest 100 ms, of the limit", "flat", low, 1.1, "", over("#.after.max", "#.limit")},
		{"e03-input", "E3", "received in order after the limit, of it", "noisy", 0.96, 1.02, "", at(`#(limiter=="netnice")#.in_order_over_limit`)},
		{"e03-input", "E3", "on the wire, of the limit", "noisy", 0.97, 1.03, "", at(`#(limiter=="netnice")#.after_over_limit`)},
		{"e04-fair-inetd", "E4", "all sessions together, of 512 KB/s less their acknowledgements", "1", 0.95, 1.01, "", at("phases.#.sum_over_limit.mean")},
		{"e04-fair-inetd", "E4", "each of two sessions, of it", "1/2", 0.47, 0.53, "", at("phases.1.shares.#.mean")},
		{"e04-fair-inetd", "E4", "each of three sessions, of it", "1/3", 0.31, 0.36, "", at("phases.2.shares.#.mean")},
		{"e04-fair-inetd", "E4", "a change is over after, ms", "quick", 0, 2000, "", at("phases.#.settled_after_ms")},
		{"e05-hub", "E5", "round trip with fair-inetd, mean, ms", "0.49", low, 0.49, single, at("2.round_trip_ms.mean")},
		{"e05-hub", "E5", "what a byte waits beside downloads of half the rate, of the wait beside the whole", "", 0.25, 0.75, "", aboveOver("3.round_trip_ms.mean", "2.round_trip_ms.mean", "0.round_trip_ms.mean")},
		{"e06-hub-two-servers", "E6", "round trip with fair-inetd, mean, ms", "0.37", low, 0.37, single, at("2.round_trip_ms.mean")},
		{"e06-hub-two-servers", "E6", "what a byte waits beside downloads of half the rate, of the wait beside the whole", "", 0.25, 0.75, "", aboveOver("3.round_trip_ms.mean", "2.round_trip_ms.mean", "0.round_trip_ms.mean")},
		{"e07-switch", "E7", "round trip with fair-inetd, mean, ms", "0.48", low, 0.48, single, at("2.round_trip_ms.mean")},
		{"e07-switch", "E7", "what a byte waits beside downloads of half the rate, of the wait beside the whole", "", 0.25, 0.75, "", aboveOver("3.round_trip_ms.mean", "2.round_trip_ms.mean", "0.round_trip_ms.mean")},
		{"e08-smooth", "E8", "limited connection, deviation of 10 ms over their mean", "almost constant", low, 0.2, "", at(`#(connection=="limited").coefficient_of_variation`)},
		{
			"e08-smooth", "E8", "saturated connection over the limited one, of that", "much more", 2, high,
			"today's TCP fills the link without a pause, and a link that is full is even; the paper's sender stood still between windows", over(`#(connection=="saturated").coefficient_of_variation`, `#(connection=="limited").coefficient_of_variation`),
		},
		{"e08-smooth", "E8", "the same of a sender that stands still between windows", "much more", 2, high, "", over(`#(connection=="in windows").coefficient_of_variation`, `#(connection=="in windows, limited").coefficient_of_variation`)},
		{"e09-sockets", "E9", "each socket, of its 3 KB/s, from its beginning on, 40 s", "approximately right", 0.95, 1.05, "", at("#.mean_over_limit|@flatten")},
		{"e09-sockets", "E9", "all together in the first second, of 24 KB/s (each begins with a segment or two)", "very bursty", low, 2, "", at(`#(sockets!="first sockets with a limit").first_second_over_limits`)},
		{
			"e09-sockets", "E9", "the same of the first sockets with a limit after netnice is up", "very bursty", low, 2,
			"the hook that holds first segments back is attached as the first socket asks for a limit, 3 to 4 ms later, and TCP sends ten segments before it paces; a connection to the same machine has sent them by then, and is silent until they are paid (decision 15). Beside a socket from before (the row above) the hook is there",
			at(`#(sockets=="first sockets with a limit").first_second_over_limits`),
		},
		{"e09-sockets", "E9", "all together in each second from the 7th on, of 24 KB/s", "very bursty", 0.85, 1.15, "", both(scaled("#.sum_per_second_after_6s.min", 1.0/24000), scaled("#.sum_per_second_after_6s.max", 1.0/24000))},
		{"e10-process", "E10", "four connections together, of 12 KB/s", "flat", 0.98, 1.02, "", at("#.sum_over_limit")},
		{"e10-process", "E10", "in each second from the 6th on, of it (a packet is 0.125)", "flat", 0.86, 1.14, "", both(scaled("#.sum_per_second_after_5s.min", 1.0/12000), scaled("#.sum_per_second_after_5s.max", 1.0/12000))},
		{"e11-uplink", "E11", "echo beside 8 senders of 64 KB/s together, median, ms", "near its least", low, 60, "", at(`#(case%"8 x 64 KB/s*")#.round_trip_ms.median`)},
		{"e11-uplink", "E11", "the same without a limit", "grows", 200, high, "", at(`#(case=="8 x no limit").round_trip_ms.median`)},
		{
			"e12-throughput", "E12", "three programs without a limit, bytes per processor second, with netnice over without", "0.39, 0.59, 0.57 (bytes/s)", 0.97, high,
			"transfers of GB/s vary by a tenth on two threads of one core, also per processor second (intervals of 10 to 15%), so 3% cannot be told; bench-overhead, which counts the threads that did the work, tells it",
			at("#.ours.per_cpu_second_with_over_without.median"),
		},
		{"e13-latency", "E13", "round trip on an idle link, median, with netnice over without", "", low, 1.2, "", over("1.round_trip_ms.median", "0.round_trip_ms.median")},
		{"e13-latency", "E13", "mean beside a transfer, limited over not", "0.58", low, 0.58, "", over("3.round_trip_ms.mean", "2.round_trip_ms.mean")},
		{
			"e14-path", "E14", "UDP that arrives, adapted over as it is", "1.04", 1, high,
			"a flood keeps the link full as it is, and probes cost some per cent of it: the next row has none", meansOver("adapt", "as it is"),
		},
		{"e14-path", "E14", "the same by a limit at the path's rate, which sends no probes", "", 0.99, high, "", meansOver("a limit at its rate", "as it is")},
		{"e15-path-shared", "E15", "part of the datagrams that arrives beside TCP, adapted", "0.67", 0.67, high, "", over("1.packets_arrived", "1.packets_sent")},
		{"e15-path-shared", "E15", "UDP that arrives beside TCP, adapted, kbit/s", "12.1 (2,736,340 bytes in 1811 s)", 12.1, high, "", scaled("1.payload_bits_per_sec", 1e-3)},
		{
			"e16-tcp-path", "E16", "time for the same file, adapted over as it is", "0.997", low, 1,
			"a queue of three packets locks one of two connections out for minutes, whoever it is; of four pairs in E17 the first has 0 to 0.37 of the path (with room for six or ten packets a second SYN finds no place for half a minute, so that could not be tried)", meansOver("as it is", "adapt"),
		},
		{
			"e17-tcp-paths", "E17", "time for the same file, both adapted over as they are, mean of four", "0.674", low, 0.674,
			"two of today's connections fill the path as they are (a row below), so one of them can only win what the other loses, and which of the two has more is chance; the row with the TCP of 2001 has the paper's condition",
			meansOver("as they are", "both adapt"),
		},
		{"e17-tcp-paths", "E17", "the same with the TCP of 2001 (reno, without SACK, timestamps, RACK and tail probes)", "0.674", low, 0.9, "", meansOver("as they are, TCP of 2001", "both adapt, TCP of 2001")},
		{"e17-tcp-paths", "E17", "both together as they are, of what the path carries", "", 0.95, 1.01, "", ofThePath("as they are")},
		{"e17-tcp-paths", "E17", "both together adapted, of what the path carries", "", 0.9, 1.01, "", ofThePath("both adapt")},
		{"e17-tcp-paths", "E17", "packets for the same file, both adapted over as they are", "0.854", low, 0.854, "", packetsForAFile("as they are", "both adapt")},
		{"e17-tcp-paths", "E17", "share of one of two that adapt, each of four", "fair", 0.4, 0.6, "", shares("both adapt")},
		{"e18-slices", "E18", "2.4 ms in each 50 ms: bursts of two packets, of all", "all", 0.95, 1, "", part("figure_4.0.bursts", "2")},
		{"e18-slices", "E18", "between their beginnings, mean, ms", "50", 49.5, 50.5, "", at("figure_4.0.between_their_beginnings_ms.mean")},
		{"e18-slices", "E25", "sent, of what is reserved, slices of 1.2 to 144 ms in each 200 ms", "almost 1 up to 9.6 ms", 0.97, 1.03, "", at("by_slice.#.over_reserved")},
		{"e19-reservations", "E19", "the third connection, of its guarantee", "0.75", 0.98, 1.05, "", over("phases.2.mbit_per_sec.2.mean", "phases.2.wanted_mbit_per_sec.2")},
		{"e19-reservations", "E19", "each of three, of what is due", "0.17, 3.5, 4.2 Mbit/s", 0.93, 1.07, "", over("phases.2.mbit_per_sec.#.mean", "phases.2.wanted_mbit_per_sec")},
		{"e19-reservations", "E19", "queue of four of 11 ms in 50 at a line of that rate, most, ms (a chunk is two packets)", "one at a time", low, 10, "", at("queue_of_four_ms.max")},
		{"e20-hog", "E20", "what a sender keeps beside a hog, less 1 - the hog's share", "in proportion", -0.1, 0.1, "", eachRow(func(row gjson.Result) (float64, bool) {
			return row.Get("over_without").Float() - (1 - row.Get("hog_percent").Float()/100), true
		})},
		{"e21-share-per-rate", "E21", "processor per Mbit/s: r squared of a straight line", "linear", 0.98, 1, "", values("r_squared")},
		{"e22-senders", "E22", "three senders with reservations beside four hogs, of 400, 400, 200 Mbit/s", "1.01, 1.01, 1.02", 0.99, high, "", over(`#(phase%"*auto")#.mbit_per_sec`, `#(phase%"*auto")#.aim_mbit_per_sec`)},
		{"e22-senders", "E22", "the table as printed, ten runs: each sender, of its 10, 10 and 5 Mbit/s", "1.01, 1.01, 1.02", 0.99, 1.1, "", over(`#(phase%"*as printed*")#.mbit_per_sec`, `#(phase%"*as printed*")#.aim_mbit_per_sec`)},
		{"e23-power", "E23", "sent at n per cent of a processor, less n/100", "linear", -0.1, 0.1, "", eachRow(func(row gjson.Result) (float64, bool) {
			return row.Get("over_n_100").Float() - row.Get("n").Float()/100, row.Get("line").String() == ""
		})},
		{"e24-slots", "E24", "time in which nothing comes, less 1 - n/100", "follows n", -0.15, 0.15, "", eachRow(func(row gjson.Result) (float64, bool) {
			return row.Get("delayed_time").Float() - (1 - row.Get("n").Float()/100), row.Get("line").String() == "" && row.Get("n").Float() < 100
		})},
		{
			"e24-slots", "E24", "packets within 100 us of another, writes of 1024 bytes, n = 100", "0.02", low, 0.05,
			"each write is a packet here, and takes 82 us to calculate; TCP of the paper filled its segments, and a full one takes 121 us on 100 Mbit/s (E27)", soonInSlots(1024),
		},
		{
			"e24-slots", "E24", "packets within 100 us of another, writes of 2048 bytes, n = 100", "0.20", 0.15, 0.3,
			"what a write leaves over is sent at once here, so every second packet is short; of the paper's every fourth was (E27)", soonInSlots(2048),
		},
		{"e26-throughput", "E26", "TCP with half of a line of 100 Mbit/s reserved over plain Linux", "0.72", 0.97, high, "", at(`#(link!="veth").ours.with_over_without.median`)},
		{"e26-throughput", "E26", "the same where only the processor limits it", "0.72", 0.72, high, "", at(`#(link=="veth").ours.with_over_without.median`)},
	}
	list = append(list, laterCriteria()...)
	for i, c := range list {
		if c.of == nil {
			panic(fmt.Sprintf("criterion %d has no figure", i))
		}
	}
	return list
}

// soonInSlots returns the part of the packets of e24-slots that arrives within 100 us of another. It selects a size
// of writes, a whole processor, and no line.
func soonInSlots(write int64) func(gjson.Result) []float64 {
	return eachRow(func(row gjson.Result) (float64, bool) {
		return row.Get("under_100us").Float(), row.Get("line").String() == "" && row.Get("write_bytes").Int() == write && row.Get("n").Int() == 100
	})
}

// at returns the numbers at a path of gjson's syntax.
func at(path string) func(gjson.Result) []float64 { return scaled(path, 1) }

func scaled(path string, by float64) func(gjson.Result) []float64 {
	return func(f gjson.Result) (list []float64) {
		found := f.Get(path)
		if !found.Exists() {
			return nil
		}
		for _, r := range found.Array() {
			list = append(list, by*r.Float())
		}
		return list
	}
}

func both(a, b func(gjson.Result) []float64) func(gjson.Result) []float64 {
	return func(f gjson.Result) []float64 { return append(a(f), b(f)...) }
}

// over divides one figure by another.
func over(path, by string) func(gjson.Result) []float64 {
	return func(f gjson.Result) []float64 {
		a, b := at(path)(f), at(by)(f)
		if len(a) != len(b) {
			return nil
		}
		for i := range a {
			a[i] /= b[i]
		}
		return a
	}
}

// aboveOver divides the distances of two figures from a third one.
func aboveOver(path, by, above string) func(gjson.Result) []float64 {
	return func(f gjson.Result) []float64 {
		for _, p := range []string{path, by, above} {
			if !f.Get(p).Exists() {
				return nil
			}
		}
		base := f.Get(above).Float()
		return []float64{(f.Get(path).Float() - base) / (f.Get(by).Float() - base)}
	}
}

// runs returns the values of all runs of a transfer of that name.
func runs(f gjson.Result, name, figure string) []float64 {
	return at(`#(name=="` + name + `")#.` + figure)(f)
}

// meansOver divides the mean rates of two transfers. That is also the time that the second takes for the same file, over
// that of the first.
func meansOver(name, by string) func(gjson.Result) []float64 {
	return func(f gjson.Result) []float64 {
		a, b := runs(f, name, "payload_bits_per_sec"), runs(f, by, "payload_bits_per_sec")
		if len(a) == 0 || len(a) != len(b) {
			return nil
		}
		return []float64{sum(a) / sum(b)}
	}
}

// ofThePath returns the payload of both connections, of what 28 kbit/s carry in full segments, in each run.
func ofThePath(name string) func(gjson.Result) []float64 {
	const carried = 28000.0 * 1448 / 1514
	return func(f gjson.Result) []float64 {
		list, beside := runs(f, name, "payload_bits_per_sec"), runs(f, name, "beside_bits_per_sec")
		for i := range min(len(list), len(beside)) {
			list[i] = (list[i] + beside[i]) / carried
		}
		return list
	}
}

// packetsForAFile returns the packets that the second of two transfers sends per arrived byte, over those of the first.
func packetsForAFile(name, then string) func(gjson.Result) []float64 {
	return func(f gjson.Result) []float64 {
		perByte := func(name string) float64 {
			arrived := 0.0
			seconds := runs(f, name, "seconds")
			for i, rate := range runs(f, name, "payload_bits_per_sec") {
				arrived += rate * seconds[i]
			}
			return sum(runs(f, name, "packets_sent")) / arrived
		}
		if len(runs(f, name, "seconds")) == 0 || len(runs(f, then, "seconds")) == 0 {
			return nil
		}
		return []float64{perByte(then) / perByte(name)}
	}
}

func sum(list []float64) (total float64) {
	for _, x := range list {
		total += x
	}
	return total
}

// shares returns the share of a transfer in each of its runs.
func shares(name string) func(gjson.Result) []float64 {
	return func(f gjson.Result) []float64 {
		list, beside := runs(f, name, "payload_bits_per_sec"), runs(f, name, "beside_bits_per_sec")
		for i := range min(len(list), len(beside)) {
			list[i] /= list[i] + beside[i]
		}
		return list
	}
}

func share(of, other string) func(gjson.Result) []float64 {
	return func(f gjson.Result) []float64 {
		a, b := f.Get(of), f.Get(other)
		if !a.Exists() || !b.Exists() {
			return nil
		}
		return []float64{a.Float() / (a.Float() + b.Float())}
	}
}

// part returns the value of one key as a part of all values of an object.
func part(object, key string) func(gjson.Result) []float64 {
	return func(f gjson.Result) []float64 {
		sum := 0.0
		for _, x := range values(object)(f) {
			sum += x
		}
		if sum == 0 {
			return nil
		}
		return []float64{f.Get(object+"."+key).Float() / sum}
	}
}

// eachRow computes a value of each row that counts.
func eachRow(of func(row gjson.Result) (value float64, counts bool)) func(gjson.Result) []float64 {
	return func(f gjson.Result) (list []float64) {
		f.ForEach(func(_, row gjson.Result) bool {
			if value, counts := of(row); counts {
				list = append(list, value)
			}
			return true
		})
		return list
	}
}

func values(object string) func(gjson.Result) []float64 {
	return func(f gjson.Result) (list []float64) {
		f.Get(object).ForEach(func(_, v gjson.Result) bool {
			list = append(list, v.Float())
			return true
		})
		return list
	}
}
