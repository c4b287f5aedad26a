package units

import (
	"fmt"
	"math/big"
	"strings"
)

const writeRate = "write for instance 10MB/s (bytes), 10mbit (bits) or 512K (1024 bytes); 0, none or unlimited lifts"

// ParseRate reads a rate in bytes per second, 1..MaxRate; 0 means "lift".
//
//	10bit 10kbit 10Mbit/s 1.5gbit  bits, prefixes of 1000 (1Mibit: 1024)
//	1B/s 1kB/s 1MB/s 1GB           bytes, prefixes of 1000
//	1KiB/s 1MiB/s                  bytes, prefixes of 1024
//	128Kbyte/sec 512K 10M          bytes, prefixes of 1024, as curl, wget and pv
//	0 none unlimited               0
//
// Prefixes may be in either case. ParseRate refuses texts that people and programs read
// differently: a bare number, "kbps" and "mbps" in any case, and a small b after a
// prefix. A fraction of a byte is rounded to the nearest byte, but less than
// one byte per second is refused. Every error is a *ParseError; the error for "10%"
// wraps ErrNeedsLink.
func ParseRate(text string) (uint64, error) {
	return parseRate(text, false)
}

// ParseBareRate reads a rate as nlimit takes it: a bare number is bytes per
// second, everything else is as in ParseRate.
func ParseBareRate(text string) (uint64, error) {
	return parseRate(text, true)
}

func parseRate(text string, bare bool) (uint64, error) {
	fail := func(problem, remedy string) (uint64, error) {
		return 0, &ParseError{Text: text, Problem: problem, Remedy: remedy, what: "rate"}
	}
	t := strings.TrimSpace(text)
	switch strings.ToLower(t) {
	case "":
		return fail("is empty", writeRate)
	case "none", "unlimited":
		return 0, nil
	}
	if strings.HasPrefix(t, "-") {
		return fail("is negative", writeRate)
	}
	number, unit := splitNumber(t)
	value, ok := parseNumber(number)
	if !ok {
		if strings.Contains(number, ",") {
			return fail("is not a number", "write a decimal point, not a comma: "+strings.Replace(number, ",", ".", 1)+unit)
		}
		return fail("is not a number with a unit", writeRate)
	}
	if unit == "" {
		if value.Sign() == 0 {
			return 0, nil
		}
		if !bare {
			return fail("has no unit", fmt.Sprintf("write %sB/s for bytes or %sbit for bits per second", number, number))
		}
		unit = "B"
	}
	if unit == "%" {
		return 0, &ParseError{
			Text: text, what: "rate", cause: ErrNeedsLink,
			Problem: "is a share of a link, and a limit is a rate",
			Remedy:  "write the rate itself, for instance 10mbit; that of a link: netnice show --link DEVICE",
		}
	}
	factor, problem, remedy := parseUnit(unit)
	if problem != "" {
		return fail(problem, strings.ReplaceAll(remedy, "#", number))
	}
	return roundRate(value.Mul(value, factor), fail)
}

// roundRate makes whole bytes per second of an exact rate.
func roundRate(exact *big.Rat, fail func(problem, remedy string) (uint64, error)) (uint64, error) {
	if exact.Sign() == 0 {
		return 0, nil
	}
	if exact.Cmp(big.NewRat(1, 1)) < 0 {
		return fail("is less than 1 byte per second", "write 1B/s or more; 0 lifts the limit, it does not stop traffic")
	}
	// floor(exact + 1/2) = floor((2 num + den) / (2 den))
	num := new(big.Int).Lsh(exact.Num(), 1)
	num.Add(num, exact.Denom())
	whole := num.Quo(num, new(big.Int).Lsh(exact.Denom(), 1))
	if !whole.IsUint64() || whole.Uint64() > MaxRate {
		return fail("is too large", "write less than 9.2EB/s, or unlimited")
	}
	return whole.Uint64(), nil
}

// splitNumber cuts a text behind its leading digits, points and commas.
func splitNumber(text string) (number, unit string) {
	end := strings.IndexFunc(text, func(r rune) bool {
		return (r < '0' || r > '9') && r != '.' && r != ','
	})
	if end < 0 {
		return text, ""
	}
	return text[:end], strings.TrimLeft(text[end:], " ")
}

// parseNumber reads digits with at most one point inside them. The length is
// bounded so that no input costs more than a line of arithmetic.
func parseNumber(text string) (*big.Rat, bool) {
	const most = 40
	whole, part, point := strings.Cut(text, ".")
	if len(text) > most || whole == "" || (point && part == "") || strings.ContainsAny(text, ",") || strings.Contains(part, ".") {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

// parseUnit returns the bytes per second of one unit, or a problem and a
// remedy in which "#" stands for the number.
func parseUnit(unit string) (factor *big.Rat, problem, remedy string) {
	body := trimPerSecond(unit)
	lower := strings.ToLower(body)
	if prefix, ok := strings.CutSuffix(lower, "bps"); ok && isPrefix(prefix) {
		p := strings.TrimSuffix(prefix, "i")
		return nil, "can mean bits or bytes per second",
			fmt.Sprintf("write #%sbit for bits or #%sB/s for bytes", p, strings.ToUpper(p))
	}
	for _, word := range []string{"bits", "bit"} {
		if prefix, ok := strings.CutSuffix(lower, word); ok && isPrefix(prefix) {
			return scale(prefix, 1000, big.NewRat(1, 8)), "", ""
		}
	}
	for _, word := range []string{"bytes", "byte"} {
		if prefix, ok := strings.CutSuffix(lower, word); ok && isPrefix(prefix) {
			return scale(prefix, 1024, big.NewRat(1, 1)), "", ""
		}
	}
	if prefix, ok := strings.CutSuffix(body, "B"); ok && isPrefix(strings.ToLower(prefix)) {
		return scale(strings.ToLower(prefix), 1000, big.NewRat(1, 1)), "", ""
	}
	if prefix, ok := strings.CutSuffix(lower, "b"); ok && isPrefix(prefix) {
		return nil, "can mean bits or bytes", fmt.Sprintf("write #%sbit for bits or #%sB/s for bytes",
			prefix, strings.ToUpper(prefix[:min(1, len(prefix))])+prefix[min(1, len(prefix)):])
	}
	if len(lower) == 1 && lower != "e" && isPrefix(lower) {
		return scale(lower, 1024, big.NewRat(1, 1)), "", ""
	}
	return nil, "has a unit that is not known", writeRate
}

// trimPerSecond cuts "/s", "/sec" or "/second" off, in any case.
func trimPerSecond(unit string) string {
	body, per, ok := strings.Cut(unit, "/")
	if !ok {
		return unit
	}
	switch strings.ToLower(strings.TrimSpace(per)) {
	case "s", "sec", "second":
		return body
	}
	return unit
}

// prefixes lists the prefixes in order of their powers; the first one means no prefix.
const prefixes = " kmgtpe"

// isPrefix reports whether a text in lower case is "", "k", "ki", "m", and so on.
func isPrefix(p string) bool {
	if p == "" {
		return true
	}
	p = strings.TrimSuffix(p, "i")
	return len(p) == 1 && p != " " && strings.Contains(prefixes, p)
}

// scale multiplies unit by base to the power of the prefix; an "i" in the
// prefix makes the base 1024.
func scale(prefix string, base int64, unit *big.Rat) *big.Rat {
	if strings.HasSuffix(prefix, "i") {
		base, prefix = 1024, strings.TrimSuffix(prefix, "i")
	}
	power := int64(0)
	if prefix != "" {
		power = int64(strings.Index(prefixes, prefix))
	}
	pow := new(big.Int).Exp(big.NewInt(base), big.NewInt(power), nil)
	return new(big.Rat).Mul(unit, new(big.Rat).SetInt(pow))
}
