package units

import (
	"strconv"
	"strings"
	"time"
)

// RateText is FormatRate in bytes, as messages have it.
func RateText(bytesPerSec uint64) string { return FormatRate(bytesPerSec, Bytes) }

// FormatRate prints a rate in bytes per second with three significant digits,
// for instance "1.25 MB/s" or "10 Mbit/s". ParseRate reads it back within
// half a percent.
func FormatRate(bytesPerSec uint64, system System) string {
	if system == Bits {
		return threeDigits(float64(bytesPerSec)*8, "bit/s")
	}
	return threeDigits(float64(bytesPerSec), "B/s")
}

// FormatLimit is FormatRate, with "unlimited" for 0.
func FormatLimit(bytesPerSec uint64, system System) string {
	if bytesPerSec == 0 {
		return "unlimited"
	}
	return FormatRate(bytesPerSec, system)
}

// FormatBytes prints a volume with three significant digits, for instance
// "12.3 MB" or "98.4 Mbit".
func FormatBytes(bytes uint64, system System) string {
	if system == Bits {
		return threeDigits(float64(bytes)*8, "bit")
	}
	return threeDigits(float64(bytes), "B")
}

// threeDigits prints a value below 1000 times a power of 1000.
func threeDigits(value float64, unit string) string {
	const names = "kMGTPEZ"
	power := 0
	number := digits(value)
	for ; power < len(names) && (value >= 1000 || number == "1000"); power++ {
		value /= 1000
		number = digits(value)
	}
	if power > 0 {
		unit = names[power-1:power] + unit
	}
	return number + " " + unit
}

// digits prints 0 <= value < 1000 with three significant digits and no
// trailing zeros.
func digits(value float64) string {
	decimals := 0
	switch {
	case value < 9.995:
		decimals = 2
	case value < 99.95:
		decimals = 1
	}
	text := strconv.FormatFloat(value, 'f', decimals, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// FormatDuration prints a duration in nanoseconds. Up to a minute it prints three significant
// digits in one unit ("25 us", "1.2 ms", "3.4 s"). Beyond that it prints
// hours, minutes and seconds ("2m10s").
func FormatDuration(ns uint64) string {
	f := float64(ns)
	switch {
	case ns == 0:
		return "0 s"
	case f < 999.5:
		return digits(f) + " ns"
	case f < 999.5e3:
		return digits(f/1e3) + " us"
	case f < 999.5e6:
		return digits(f/1e6) + " ms"
	case f < 59.95e9:
		return digits(f/1e9) + " s"
	case ns > 1<<63-1:
		return "centuries"
	}
	return time.Duration(ns).Round(time.Second).String()
}

// ParseDuration reads a duration such as "10ms" or "1.5s" in nanoseconds,
// 0 or more. Every error is a *ParseError.
func ParseDuration(text string) (uint64, error) {
	const write = "write a number with a unit: 500us, 10ms, 1.5s"
	d, err := time.ParseDuration(strings.TrimSpace(text))
	switch {
	case err != nil:
		return 0, &ParseError{Text: text, Problem: "is not a time", Remedy: write, what: "duration"}
	case d < 0:
		return 0, &ParseError{Text: text, Problem: "is negative", Remedy: write, what: "duration"}
	}
	return uint64(d), nil
}
