package units

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFormat(t *testing.T) {
	for rate, want := range map[uint64][2]string{
		0:             {"0 B/s", "0 bit/s"},
		1:             {"1 B/s", "8 bit/s"},
		999:           {"999 B/s", "7.99 kbit/s"},
		1000:          {"1 kB/s", "8 kbit/s"},
		999_499:       {"999 kB/s", "8 Mbit/s"},
		999_600:       {"1 MB/s", "8 Mbit/s"},
		1_250_000:     {"1.25 MB/s", "10 Mbit/s"},
		9_996_000:     {"10 MB/s", "80 Mbit/s"},
		10_485_760:    {"10.5 MB/s", "83.9 Mbit/s"},
		1_250_000_000: {"1.25 GB/s", "10 Gbit/s"},
		MaxRate:       {"9.22 EB/s", "73.8 Ebit/s"},
	} {
		require.Equal(t, want[0], FormatRate(rate, Bytes))
		require.Equal(t, want[1], FormatRate(rate, Bits))
	}
	require.Equal(t, "unlimited", FormatLimit(0, Bytes))
	require.Equal(t, "1 MB/s", FormatLimit(1e6, Bytes))
	require.Equal(t, "12.3 MB", FormatBytes(12_345_678, Bytes))
	require.Equal(t, "98.8 Mbit", FormatBytes(12_345_678, Bits))
}

func TestFormatDuration(t *testing.T) {
	for ns, want := range map[uint64]string{
		0: "0 s", 1: "1 ns", 999: "999 ns", 25_000: "25 us", 999_600: "1 ms", 1_234_567: "1.23 ms",
		999_600_000: "1 s", 3_400_000_000: "3.4 s", 59_960_000_000: "1m0s", 130_000_000_000: "2m10s",
		1<<64 - 1: "centuries",
	} {
		require.Equal(t, want, FormatDuration(ns))
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "10ms": 10e6, "1.5s": 1.5e9, "500us": 500e3} {
		got, err := ParseDuration(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "10", "-1ms", "soon", "999999999999h"} {
		_, err := ParseDuration(text)
		var pe *ParseError
		require.ErrorAs(t, err, &pe, text)
		require.NotEmpty(t, pe.Hint())
	}
}

func TestSystemFlag(t *testing.T) {
	var s System
	require.NoError(t, s.Set("bits"))
	require.Equal(t, "bits", s.String())
	require.NoError(t, s.Set("Bytes"))
	require.Equal(t, "bytes", s.String())
	require.Error(t, s.Set("furlongs"))
}
