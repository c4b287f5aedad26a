package units

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestAmbiguityNote(t *testing.T) {
	for text, want := range map[string]string{
		"10M":    "10M = 10.5 MB/s; for bits 10mbit",
		"10m":    "10m = 10.5 MB/s; for bits 10mbit",
		"512K":   "512K = 524 kB/s; for bits 512kbit",
		"1.5G/s": "1.5G/s = 1.61 GB/s; for bits 1.5gbit",
		"10MB/s": "", "10mbit": "", "128Kbyte/sec": "", "1MiB/s": "", "100B": "",
		"0M": "", "none": "", "10": "", "10mb": "", "fast": "",
	} {
		require.Equal(t, want, AmbiguityNote(text), text)
	}
}

func TestLowRateNote(t *testing.T) {
	for text, want := range map[string]string{
		"1B/s":      "1B/s is less than 1 kB/s, at which hardly anything gets through; did you mean 1MB/s?",
		"8bit":      "8bit is less than 1 kB/s, at which hardly anything gets through; did you mean 8mbit?",
		"0.5K":      "0.5K is less than 1 kB/s, at which hardly anything gets through; did you mean 0.5MB/s?",
		"5":         "5 is less than 1 kB/s, at which hardly anything gets through; did you mean 5MB/s?",
		"1kB/s":     "",
		"8kbit":     "",
		"100000":    "",
		"0.001mbit": "0.001mbit is less than 1 kB/s, at which hardly anything gets through",
		"0":         "", "none": "", "10mb": "", "fast": "",
	} {
		require.Equal(t, want, LowRateNote(text), text)
	}
}

// The proposal of a note is a valid rate; otherwise following it would only lead to an error.
func TestNotesProposeRates(t *testing.T) {
	proposed := regexp.MustCompile(`(?:for bits|did you mean) ([^ ?]+)`)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[0-9]{1,4}(\.[0-9])?(k|K|m|M|g|G|t|bit|B|B/s|K/s|)`).Draw(t, "text")
		for _, note := range []string{AmbiguityNote(text), LowRateNote(text)} {
			if note == "" {
				continue
			}
			if found := proposed.FindStringSubmatch(note); found != nil {
				_, err := ParseRate(found[1])
				require.NoError(t, err, note)
			}
		}
	})
}
