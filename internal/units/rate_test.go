package units

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "none": 0, "Unlimited": 0, "0mbit": 0, "0.0": 0, "0 B/s": 0,
		"8bit": 1, "10mbit": 1_250_000, "1.5gbit": 187_500_000, "10Mbit/s": 1_250_000,
		"10 Mbit/s": 1_250_000, "10MBIT": 1_250_000, "10Mbits/sec": 1_250_000, "1Mibit": 131072,
		"1kbit": 125, "1B/s": 1, "100B": 100, "1MB/s": 1_000_000, "1mB/s": 1_000_000,
		"1kB/s": 1000, "1KB/s": 1000, "2GB": 2_000_000_000, "1MiB/s": 1 << 20, "1KiB/second": 1024,
		"128Kbyte/sec": 128 << 10, "128kbytes": 128 << 10, "3byte/s": 3,
		"512K": 512 << 10, "512k": 512 << 10, "10M/s": 10 << 20, "1g": 1 << 30, "1T": 1 << 40, "1P": 1 << 50,
		"0.5K": 512, "12bit": 2, "11bit": 1, "1.4B/s": 1, "1.5B/s": 2,
		" 10mbit ": 1_250_000, "9223372036854775807B/s": MaxRate, "9EB/s": 9e18,
	} {
		got, err := ParseRate(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestParseRateRefuses(t *testing.T) {
	for text, remedy := range map[string]string{
		"":                       "write for instance",
		"fast":                   "write for instance",
		"mbit":                   "write for instance",
		"10":                     "write 10B/s for bytes or 10bit",
		"1e6":                    "write for instance",
		"1E":                     "write for instance",
		"-5mbit":                 "write for instance",
		"+5mbit":                 "write for instance",
		"1.2.3MB/s":              "write for instance",
		"5.MB/s":                 "write for instance",
		"0x10MB":                 "write for instance",
		"1,5mbit":                "1.5mbit",
		"10kbps":                 "write 10kbit for bits or 10KB/s for bytes",
		"10mbps":                 "write 10mbit for bits or 10MB/s for bytes",
		"10Mbps":                 "write 10mbit",
		"10MBps":                 "write 10mbit",
		"10bps":                  "write 10bit for bits or 10B/s for bytes",
		"10Mb":                   "write 10mbit for bits or 10MB/s for bytes",
		"10Mb/s":                 "write 10mbit",
		"10mb":                   "write 10mbit",
		"10b/s":                  "write 10bit for bits or 10B/s for bytes",
		"10Mib":                  "write 10mibit for bits or 10MiB/s for bytes",
		"10Mi":                   "write for instance",
		"10MB/h":                 "write for instance",
		"10MB/":                  "write for instance",
		"1bit":                   "write 1B/s or more",
		"0.9B/s":                 "write 1B/s or more",
		"9223372036854775808B/s": "write less than",
		"10EB/s":                 "write less than",
		"99999999999999999PiB/s": "write less than",
		"10%":                    "write the rate itself",
		"10mbit extra":           "write for instance",
		strings.Repeat("1", 99):  "write for instance",
	} {
		_, err := ParseRate(text)
		var pe *ParseError
		require.ErrorAs(t, err, &pe, text)
		require.Contains(t, pe.Hint(), remedy, text)
		require.NotContains(t, pe.Error()+pe.Hint(), "\n", text)
	}
	_, err := ParseRate("10%")
	require.True(t, errors.Is(err, ErrNeedsLink))
}

func TestParseBareRate(t *testing.T) {
	for text, want := range map[string]uint64{"1": 1, "10000": 10000, "0": 0, "1.5": 2, "10mbit": 1_250_000, "unlimited": 0} {
		got, err := ParseBareRate(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"-1", "ten", "10mbps", "0.1"} {
		_, err := ParseBareRate(text)
		require.Error(t, err, text)
	}
}

// Every remedy must itself be readable, or following it would only lead to the
// next error.
func TestRemediesParse(t *testing.T) {
	for _, p := range []string{"", "k", "K", "m", "M", "g", "Gi", "t"} {
		for _, u := range []string{"b", "bps", "b/s"} {
			_, err := ParseRate("10" + p + u)
			var pe *ParseError
			require.ErrorAs(t, err, &pe)
			var bits, bytes string
			_, err = fmt.Sscanf(pe.Hint(), "write %s for bits or %s for bytes", &bits, &bytes)
			require.NoError(t, err, pe.Hint())
			for _, text := range []string{bits, bytes} {
				_, err := ParseRate(text)
				require.NoError(t, err, "remedy %q of 10%s%s", text, p, u)
			}
		}
	}
}

func TestFormatReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.IntRange(0, 62).Draw(t, "bits")
		rate := rapid.Uint64Range(1<<bits, 1<<bits*2-1).Draw(t, "rate")
		system := System(rapid.IntRange(0, 1).Draw(t, "system"))
		text := FormatRate(rate, system)
		if rate > 9_220_000_000_000_000_000 {
			return // "9.22 EB/s" may lie just above MaxRate
		}
		back, err := ParseRate(text)
		require.NoError(t, err, text)
		tolerance := math.Max(1, 0.0051*float64(rate)) // a rate is whole bytes, rounded up
		require.InDelta(t, float64(rate), float64(back), tolerance, text)
	})
}

func TestWholeUnitsAreExact(t *testing.T) {
	factors := map[string]uint64{"B/s": 1, "kB/s": 1e3, "MB/s": 1e6, "KiB/s": 1 << 10, "MiB": 1 << 20, "K": 1 << 10, "M": 1 << 20, "kbit": 125, "mbit": 125e3, "gbit/s": 125e6, "Mbyte/sec": 1 << 20}
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]string{"B/s", "kB/s", "MB/s", "KiB/s", "MiB", "K", "M", "kbit", "mbit", "gbit/s", "Mbyte/sec"}).Draw(t, "unit")
		n := rapid.Uint64Range(0, 1<<30).Draw(t, "n")
		got, err := ParseRate(fmt.Sprintf("%d%s", n, unit))
		require.NoError(t, err)
		require.Equal(t, n*factors[unit], got)
	})
}

func TestParseRateAnyText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`-?[0-9]{0,25}[.,]?[0-9]{0,3} ?[kKmMgGtTpPeE]?i?(b|B|bit|byte|bps|)(/s|/sec|)`)).Draw(t, "text")
		rate, err := ParseRate(text)
		var pe *ParseError
		if err == nil {
			require.LessOrEqual(t, rate, MaxRate)
			return
		}
		require.ErrorAs(t, err, &pe)
		require.NotEmpty(t, pe.Hint())
		require.Zero(t, rate)
	})
}

// Any text is a rate, or an error with a remedy. The printed form of a rate is read back as
// the same rate.
func FuzzParseRate(f *testing.F) {
	for _, seed := range []string{"10mbit", "1.5 GB/s", "512K", "10%", "-1", "1e9", "kbps", "9223372036854775807B/s", "0.0001bit", "1,5MB/s", "1Ki/sec"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(string) (uint64, error){ParseRate, ParseBareRate} {
			rate, err := parse(text)
			var pe *ParseError
			switch {
			case err == nil && rate > MaxRate:
				t.Fatalf("%q gave %d", text, rate)
			case err == nil:
				if again, err := ParseRate(fmt.Sprintf("%dB/s", rate)); err != nil || again != rate {
					t.Fatalf("%q gave %d, which gave %d, %v", text, rate, again, err)
				}
			case !errors.As(err, &pe) || pe.Hint() == "" || rate != 0:
				t.Fatalf("%q gave %d and %#v", text, rate, err)
			}
		}
	})
}
