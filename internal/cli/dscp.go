package cli

import (
	"fmt"
	"strconv"
	"strings"
)

// dscpNames are the usual names of marks, of RFC 2474, 2597, 3246 and 8622.
func dscpNames() map[string]int {
	names := map[string]int{"ef": 46, "va": 44, "le": 1, "none": -1}
	for class := range 8 {
		names[fmt.Sprint("cs", class)] = 8 * class
	}
	for class := 1; class <= 4; class++ {
		for drop := 1; drop <= 3; drop++ {
			names[fmt.Sprintf("af%d%d", class, drop)] = 8*class + 2*drop
		}
	}
	return names
}

// parseDSCP reads a name or 0..63; -1 is no mark.
func parseDSCP(text string) (int, error) {
	if n, ok := dscpNames()[strings.ToLower(text)]; ok {
		return n, nil
	}
	const most = 63
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, fail("write 0..63, cs0 to cs7, af11 to af43, ef, va, le or none", "%q is no DSCP", text)
	}
	return n, nil
}

// dscpText names a mark.
func dscpText(dscp int) string {
	for name, n := range dscpNames() {
		if n == dscp {
			return name
		}
	}
	return strconv.Itoa(dscp)
}
