package desired

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/netnice/netnice/internal/statefile"
)

// Load reads the file, and finds in this boot when limits end; it returns nil without an error if there is no file. Of a
// damaged file it returns the intact part and the damage. An error names the file and a remedy, and means that nothing
// may be changed.
func Load(dir, boot string) (*State, error) {
	path := filepath.Join(dir, FileName)
	data, err := statefile.ReadTrusted(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, statefile.Unusable(path, err)
	}
	s, err := Parse(data, boot)
	if err != nil {
		return nil, statefile.Unusable(path, err)
	}
	s.findEnds(boot, Now())
	return s, nil
}

// Parse parses the file's text in a boot of the machine. An error means a file of a newer netnice; the state
// reports damage.
func Parse(data []byte, boot string) (*State, error) {
	var head struct {
		Version int `json:"version"`
	}
	s := &State{}
	err := json.NewDecoder(bytes.NewReader(data)).Decode(&head)
	switch {
	case err != nil:
		s.Damage = fmt.Errorf("its version cannot be read: %w", err)
	case head.Version > Version:
		return nil, fmt.Errorf("it was written by a newer netnice (its version is %d, this one knows %d)", head.Version, Version)
	case head.Version < 1:
		s.Damage = fmt.Errorf("version %d is unknown", head.Version)
	case head.Version == 1:
		if err := statefile.Strictly(data, s); err != nil {
			s = &State{Damage: err}
		}
	default:
		s.read(data, boot)
	}
	if err := s.check(); err != nil {
		s.Nodes = nil // none of it is certain
		if s.Damage == nil {
			s.Damage = err
		}
	}
	return s, nil
}

// read parses a heading and records, up to the first damage.
func (s *State) read(data []byte, boot string) {
	first, rest, ended := bytes.Cut(data, []byte("\n"))
	if !ended {
		s.Damage = errors.New("its first line does not end")
		return
	}
	var h heading
	if err := statefile.Strictly(first, &h); err != nil {
		s.Damage = fmt.Errorf("line 1: %w", err)
		return
	}
	s.Version, s.BootID, s.NextID = h.Version, h.BootID, h.NextID
	nodes := make(map[uint32]Record)
	sum, records := uint32(0), 0
	for {
		var line []byte
		// A text after the end of the last line was being written when the machine stopped, and its command had not
		// returned.
		if line, rest, ended = bytes.Cut(rest, []byte("\n")); !ended {
			break
		}
		r, next, err := readChange(line, h.Version, sum)
		if err != nil {
			s.Damage = fmt.Errorf("line %d: %w", 2+records, err)
			break
		}
		sum = next
		records++
		if r.NextID != 0 {
			s.NextID = r.NextID
		}
		if r.Node != nil {
			nodes[r.Node.ID] = *r.Node
		} else {
			delete(nodes, r.Gone)
		}
	}
	switch least := h.least(boot); {
	case s.Damage != nil || records >= least:
	case least == behind:
		s.Damage = errors.New("what was wanted last could not be written")
	default:
		s.Damage = fmt.Errorf("it was cut: it ends after %d of at least %d records", records, least)
	}
	s.Nodes = slices.SortedFunc(maps.Values(nodes), func(a, b Record) int { return int(a.ID) - int(b.ID) })
}

// least returns the number of records that have to follow. In the boot in which the file was written that is the number
// of all records. After a power cut it is the number that had reached the disk.
func (h heading) least(boot string) int {
	switch {
	case h.Version < summedVersion:
		return h.Nodes
	case h.BootID == boot:
		return h.Records
	}
	return h.Synced
}

// summed is the table for the records' checksums.
var summed = crc32.MakeTable(crc32.Castagnoli)

// sumDigits is the number of digits of a checksum.
const sumDigits = 8

// readChange parses a line, and returns the checksum of all records up to it.
func readChange(line []byte, version int, before uint32) (r Change, sum uint32, err error) {
	if version >= summedVersion {
		if len(line) <= sumDigits || line[sumDigits] != ' ' {
			return r, 0, errors.New("it has no checksum")
		}
		want, err := strconv.ParseUint(string(line[:sumDigits]), 16, 32)
		if err != nil {
			return r, 0, fmt.Errorf("its checksum: %w", err)
		}
		line = line[sumDigits+1:]
		if sum = crc32.Update(before, summed, line); uint64(sum) != want {
			return r, 0, errors.New("its checksum is another, or a line before it is missing")
		}
	}
	return r, sum, statefile.Strictly(line, &r)
}
