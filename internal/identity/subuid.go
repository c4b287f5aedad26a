package identity

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/enforce"
)

// SubordinatesFile says which user ids were given to users for namespaces of their own
// (subuid(5)).
const SubordinatesFile = "/etc/subuid"

// mostSubordinates is how much is read of it: the lines of 4096 users.
const mostSubordinates = 4096

// Subordinates reads a file like /etc/subuid: sorted ranges, of which none overlap. Those
// of root are left out: who lives in them is somebody else. Whom two ranges are given to
// is the first's. A missing file has none; a line that is wrong is left out, and so is one of a user whom uidOf does
// not know: missing is why, of the first of them that are only not known yet, or else of the first.
func Subordinates(path string, uidOf func(name string) (uint32, error)) (list []enforce.Subordinates, missing, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read whose user ids are whose: %w", err)
	}
	uids := make(map[string]uint32)
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		const most = 1<<32 - 2 // -1 is nobody at all
		if len(fields) != 3 || strings.HasPrefix(line, "#") {
			continue
		}
		first, err1 := strconv.ParseUint(fields[1], 10, 32)
		count, err2 := strconv.ParseUint(fields[2], 10, 32)
		if err1 != nil || err2 != nil || count == 0 || first == 0 || first+count-1 > most {
			continue
		}
		uid, known := uids[fields[0]]
		if !known {
			var unknown error
			if uid, unknown = uidOf(fields[0]); unknown != nil {
				if missing == nil || errors.Is(unknown, account.ErrPending) {
					missing = unknown
				}
				continue
			}
			uids[fields[0]] = uid
		}
		if uid != 0 {
			list = append(list, enforce.Subordinates{First: uint32(first), Last: uint32(first + count - 1), Owner: uid})
		}
		if len(list) == mostSubordinates {
			break
		}
	}
	slices.SortStableFunc(list, func(a, b enforce.Subordinates) int { return cmp.Compare(a.First, b.First) })
	out := list[:0]
	for _, r := range list {
		if n := len(out); n > 0 && r.First <= out[n-1].Last {
			if r.Last <= out[n-1].Last {
				continue
			}
			r.First = out[n-1].Last + 1
		}
		out = append(out, r)
	}
	return out, missing, nil
}
