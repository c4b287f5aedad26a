package verdict

import "github.com/tidwall/gjson"

// laterCriteria returns the criteria for the papers' results beside their numbered ones. These are tender's Table 3,
// topp's Figures 6 and 7 and its files that never arrived whole, and nlimit's remarks on slow lines.
func laterCriteria() []Criterion {
	const cable, dsl, lan = "cable modem", "DSL", "LAN"
	const late = "64 blocks take 10 s at this rate, and the sender waits 5 s for their ACK, then sends all of them again: no lost block, but twice the time; 16 blocks (the rows before) take 2.5 s"
	return []Criterion{
		{"e27-packet-sizes", "E27", "full packets within 100 us of another, of the full ones, on 100 Mbit/s, n = 100", "0", low, 0.02, "", ofPackets("full_soon", "full", func(row gjson.Result) bool {
			return row.Get("n").Int() == 100
		})},
		{"e27-packet-sizes", "E27", "short packets within 100 us of another, of the short ones, writes of 2048 bytes", "0.994", 0.9, 1, "", ofPackets("short_soon", "short", func(row gjson.Result) bool {
			return row.Get("calculates").Bool() && row.Get("n").Int() == 100
		})},
		{"e27-packet-sizes", "E27", "of the packets within 100 us those that are short, writes of 2048 bytes", "1", 0.98, 1, "", ofPackets("short_soon", "soon", func(row gjson.Result) bool {
			return row.Get("calculates").Bool() && row.Get("n").Int() == 100
		})},
		{"e27-packet-sizes", "E27", "the same with half of a processor in slots of 1 ms", "", 0.98, 1, "", ofPackets("short_soon", "soon", func(row gjson.Result) bool {
			return row.Get("n").Int() < 100
		})},
		{"e27-packet-sizes", "E27", "packets within 100 us, of all, writes of 1024 bytes", "0.023 (text: 0.02)", low, 0.05, "", ofPackets("soon", "packets", func(row gjson.Result) bool {
			return row.Get("write_bytes").Int() == 1024
		})},
		{
			"e27-packet-sizes", "E27", "packets within 100 us, of all, writes of 2048 bytes, n = 100", "0.249 (text: 0.20)", 0.15, 0.3,
			"how many packets are short is up to TCP and its sender: today's fills every segment while a line stops the sender, and sends each write's rest at once where the sender wants that and no line stops it",
			ofPackets("soon", "packets", func(row gjson.Result) bool {
				return row.Get("write_bytes").Int() == 2048 && row.Get("n").Int() == 100
			}),
		},
		{"e28-path-in-time", "E28", "datagrams lost, of those sent, in each 5 s beside TCP, adapted", "the lower line (0.33 in all)", low, 0.33, "", lostInTime("1")},
		{"e28-path-in-time", "E28", "UDP, of what UDP and TCP have, adapted", "the lower line", 1.0 / 3, 0.7, "", share("1.payload_bits_per_sec", "1.beside_bits_per_sec")},
		{"e28-path-in-time", "E28", "part of the time in which UDP has less than a tenth of the path, adapted", "most of it, at the least rate", low, 0.1, "", partBelow("1.bits_per_sec_by_5_s", 2800)},
		{"e29-slow-lines", "E29", "echo beside a transfer over that of the idle line, cable modem", "massive", 10, high, "", over(echoOf(cable, "saturated"), echoOf(cable, "idle"))},
		{"e29-slow-lines", "E29", "the same with a limit, of that without one", "massive gains", low, 0.2, "", over(echoOf(cable, "limited"), echoOf(cable, "saturated"))},
		{"e29-slow-lines", "E29", "what a transfer adds on the cable modem, of what it adds on DSL", "on DSL less", 2, high, "", addedOver(cable, dsl)},
		{"e29-slow-lines", "E29", "what it adds with a limit, in times that a full packet takes", "", low, 3, "", both(addedPackets(cable), addedPackets(dsl))},
		{"e29-slow-lines", "E29", "what it adds on 100 Mbit/s, ms, without and with a limit", "relatively constant", -2, 2, "", both(addedBy(lan, "saturated"), addedBy(lan, "limited"))},
		{"e30-whole-file", "E30", "time until a file is whole (TFTP, windows of 16 blocks), adapted over as it is", "0.960, never whole", low, 0.96, "", meansOver("16 blocks, as it is", "16 blocks, adapt")},
		{"e30-whole-file", "E30", "the same beside TCP", "never whole", low, 0.96, "", meansOver("16 blocks beside TCP, as it is", "16 blocks beside TCP, adapt")},
		{"e30-whole-file", "E30", "the file is whole, adapted, 16 blocks", "0", 1, 1, "", whole("16 blocks, adapt")},
		{"e30-whole-file", "E30", "the file is whole beside TCP, adapted, 8 blocks", "0", 1, 1, "", whole("8 blocks beside TCP, adapt")},
		{
			"e30-whole-file", "E30", "the same of 16 blocks", "0", 1, 1,
			"16 blocks take 5 s of half of the path, as long as the sender waits for their ACK before it sends all of them again; 8 blocks (the row before) take 2.5 s", whole("16 blocks beside TCP, adapt"),
		},
		{"e30-whole-file", "E30", "time until a file is whole (windows of 64 blocks), adapted over as it is", "0.960, never whole", low, 0.96, late, meansOver("64 blocks, as it is", "64 blocks, adapt")},
		{"e30-whole-file", "E30", "the same beside TCP, 64 blocks", "never whole", low, 0.96, late, meansOver("64 blocks beside TCP, as it is", "64 blocks beside TCP, adapt")},
	}
}

// whole returns 1 if the transfer's file arrived whole.
func whole(name string) func(gjson.Result) []float64 {
	return func(f gjson.Result) []float64 { return runs(f, name, "file.whole") }
}

// ofPackets divides two counts of e27-packet-sizes, in the rows behind the line of 100 Mbit/s that count.
func ofPackets(of, all string, counts func(row gjson.Result) bool) func(gjson.Result) []float64 {
	return eachRow(func(row gjson.Result) (float64, bool) {
		n := row.Get(all).Float()
		return row.Get(of).Float() / max(n, 1), row.Get("line").Bool() && counts(row) && n > 0
	})
}

// lostInTime returns the lost part of the datagrams of a transfer, in each span in which some were sent.
func lostInTime(transfer string) func(gjson.Result) []float64 {
	return func(f gjson.Result) (list []float64) {
		lost, sent := at(transfer+".packets_lost_by_5_s")(f), at(transfer+".packets_sent_by_5_s")(f)
		for i := range min(len(lost), len(sent)) {
			if sent[i] > 0 {
				list = append(list, lost[i]/sent[i])
			}
		}
		return list
	}
}

// partBelow returns the part of the values at a path that are below a bound.
func partBelow(path string, bound float64) func(gjson.Result) []float64 {
	return func(f gjson.Result) []float64 {
		values := at(path)(f)
		if len(values) == 0 {
			return nil
		}
		n := 0.0
		for _, x := range values {
			if x < bound {
				n++
			}
		}
		return []float64{n / float64(len(values))}
	}
}

// echoOf returns the path of a line's median echo in a state.
func echoOf(line, state string) string {
	return `#(case=="` + line + `, ` + state + `").round_trip_ms.median`
}

// addedBy returns the time that a state adds to the echo of an idle line, in milliseconds.
func addedBy(line, state string) func(gjson.Result) []float64 {
	return func(f gjson.Result) []float64 {
		idle, busy := f.Get(echoOf(line, "idle")), f.Get(echoOf(line, state))
		if !idle.Exists() || !busy.Exists() {
			return nil
		}
		return []float64{busy.Float() - idle.Float()}
	}
}

// addedOver returns the time that a transfer adds on one line, over the time that it adds on another.
func addedOver(line, other string) func(gjson.Result) []float64 {
	return func(f gjson.Result) []float64 {
		a, b := addedBy(line, "saturated")(f), addedBy(other, "saturated")(f)
		if len(a) == 0 || len(b) == 0 {
			return nil
		}
		return []float64{a[0] / b[0]}
	}
}

// addedPackets returns the time that a limited transfer adds, in durations of a full packet on the line.
func addedPackets(line string) func(gjson.Result) []float64 {
	return func(f gjson.Result) []float64 {
		added, packet := addedBy(line, "limited")(f), f.Get(`#(case=="`+line+`, limited").packet_ms`)
		if len(added) == 0 || !packet.Exists() {
			return nil
		}
		return []float64{added[0] / packet.Float()}
	}
}
