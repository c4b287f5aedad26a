package units

import (
	"fmt"
	"strings"
)

// lowRate is the rate below which a limit is more likely a slip than intended, in
// bytes per second: a packet of 1500 bytes then takes longer than a second.
const lowRate = 1000

// AmbiguityNote says how ParseRate reads a rate that other programs read as bits:
// "10M = 10.5 MB/s; for bits 10mbit". It is empty for a rate with only one reading,
// for a text that lifts the limit, and for a text that does not parse.
func AmbiguityNote(text string) string {
	rate, err := ParseRate(text)
	if err != nil || rate == 0 {
		return ""
	}
	text = strings.TrimSpace(text)
	number, unit := splitNumber(text)
	letter := strings.ToLower(trimPerSecond(unit))
	if len(letter) != 1 || letter == "b" {
		return ""
	}
	return fmt.Sprintf("%s = %s; for bits %s%sbit", text, FormatRate(rate, Bytes), number, letter)
}

// LowRateNote suggests a rate in place of a limit below 1 kB/s: "1B/s is less than
// 1 kB/s, at which hardly anything gets through; did you mean 1MB/s?". It is empty for
// other rates, for a text that lifts the limit, and for a text that does not parse. A number without a
// unit is bytes per second, as ParseBareRate reads it.
func LowRateNote(text string) string {
	rate, err := ParseBareRate(text)
	if err != nil || rate == 0 || rate >= lowRate {
		return ""
	}
	text = strings.TrimSpace(text)
	number, unit := splitNumber(text)
	likely := "MB/s"
	if strings.Contains(strings.ToLower(unit), "bit") {
		likely = "mbit"
	}
	note := text + " is less than 1 kB/s, at which hardly anything gets through"
	if meant, err := ParseRate(number + likely); err == nil && meant >= lowRate {
		note += "; did you mean " + number + likely + "?"
	}
	return note
}
