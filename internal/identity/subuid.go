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

// SubordinatesFile lists the ranges of user ids that users may map in user namespaces of their own
// (subuid(5)).
const SubordinatesFile = "/etc/subuid"

// mostSubordinates bounds the ranges that are read from the file.
const mostSubordinates = 4096

// Subordinates reads a file like /etc/subuid. The ranges in the list are sorted, and none overlap. The list has no
// ranges of root, because the processes in them act for another user. Ids that are in the ranges of two users belong
// to the range that begins first. A missing file has no ranges. The list leaves out wrong lines, and lines of users
// that uidOf does not know. Missing is the error of the first user that is only not known yet, or else of the first
// unknown user.
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
		user, r, ok := parseSubordinates(line)
		if !ok {
			continue
		}
		uid, known := uids[user]
		if !known {
			var unknown error
			if uid, unknown = uidOf(user); unknown != nil {
				if missing == nil || errors.Is(unknown, account.ErrPending) {
					missing = unknown
				}
				continue
			}
			uids[user] = uid
		}
		if r.Owner = uid; uid != 0 {
			list = append(list, r)
		}
		if len(list) == mostSubordinates {
			break
		}
	}
	return withoutOverlap(list), missing, nil
}

// parseSubordinates reads a line of the file: a user's name, the first id of a range, and the length of the range. The
// result is false for a comment and for a line that makes no sense.
func parseSubordinates(line string) (user string, r enforce.Subordinates, ok bool) {
	const most = 1<<32 - 2 // the id -1 is no user
	fields := strings.Split(strings.TrimSpace(line), ":")
	if len(fields) != 3 || strings.HasPrefix(line, "#") {
		return "", r, false
	}
	first, err := strconv.ParseUint(fields[1], 10, 32)
	count, err2 := strconv.ParseUint(fields[2], 10, 32)
	if err != nil || err2 != nil || count == 0 || first == 0 || first+count-1 > most {
		return "", r, false
	}
	return fields[0], enforce.Subordinates{First: uint32(first), Last: uint32(first + count - 1)}, true
}

// withoutOverlap sorts ranges. Ids in two of them stay with the range that begins first.
func withoutOverlap(list []enforce.Subordinates) []enforce.Subordinates {
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
	return out
}
