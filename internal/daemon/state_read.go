package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/netnice/netnice/api"
)

// loadState reads the file; it returns nil without an error if there is none. Of a damaged file it returns the intact
// part and the damage. An error names the file and a remedy, and means that nothing may be changed.
func loadState(dir, boot string) (*state, error) {
	path := filepath.Join(dir, stateName)
	data, err := readTrusted(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, stateError(path, err)
	}
	s, err := readState(data, boot)
	if err != nil {
		return nil, stateError(path, err)
	}
	return s, nil
}

// readState parses the file's text in a boot of the machine. An error means a file of a newer netnice; the state
// reports damage.
func readState(data []byte, boot string) (*state, error) {
	var head struct {
		Version int `json:"version"`
	}
	s := &state{}
	err := json.NewDecoder(bytes.NewReader(data)).Decode(&head)
	switch {
	case err != nil:
		s.damage = fmt.Errorf("its version cannot be read: %w", err)
	case head.Version > stateVersion:
		return nil, fmt.Errorf("it was written by a newer netnice (its version is %d, this one knows %d)", head.Version, stateVersion)
	case head.Version < 1:
		s.damage = fmt.Errorf("version %d is unknown", head.Version)
	case head.Version == 1:
		if err := strictly(data, s); err != nil {
			s = &state{damage: err}
		}
	default:
		s.read(data, boot)
	}
	if err := s.check(); err != nil {
		s.Nodes = nil // none of it is certain
		if s.damage == nil {
			s.damage = err
		}
	}
	return s, nil
}

// read parses a heading and records, up to the first damage.
func (s *state) read(data []byte, boot string) {
	first, rest, ended := bytes.Cut(data, []byte("\n"))
	if !ended {
		s.damage = errors.New("its first line does not end")
		return
	}
	var h heading
	if err := strictly(first, &h); err != nil {
		s.damage = fmt.Errorf("line 1: %w", err)
		return
	}
	s.Version, s.BootID, s.NextID = h.Version, h.BootID, h.NextID
	nodes := make(map[uint32]savedNode)
	sum, records := uint32(0), 0
	for {
		var line []byte
		// A text after the end of the last line was being written when the machine stopped, and its command had not
		// returned.
		if line, rest, ended = bytes.Cut(rest, []byte("\n")); !ended {
			break
		}
		r, next, err := readRecord(line, h.Version, sum)
		if err != nil {
			s.damage = fmt.Errorf("line %d: %w", 2+records, err)
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
	case s.damage != nil || records >= least:
	case least == behind:
		s.damage = errors.New("what was wanted last could not be written")
	default:
		s.damage = fmt.Errorf("it was cut: it ends after %d of at least %d records", records, least)
	}
	s.Nodes = slices.SortedFunc(maps.Values(nodes), func(a, b savedNode) int { return int(a.ID) - int(b.ID) })
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

// readRecord parses a line, and returns the checksum of all records up to it.
func readRecord(line []byte, version int, before uint32) (r record, sum uint32, err error) {
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
	return r, sum, strictly(line, &r)
}

// strictly decodes one value, which must be the whole text.
func strictly(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more than one value")
	}
	return nil
}

func stateError(path string, err error) error {
	var known *api.Error
	if errors.As(err, &known) {
		return err
	}
	return &api.Error{
		Code:    api.CodeInternal,
		Message: fmt.Sprintf("the state file %s cannot be used: %v; limits in force stay as they are", path, err),
		Hint:    fmt.Sprintf("put it aside and start again, the limits in force are then adopted: sudo mv %s %s.bad", path, path),
		Cause:   err,
	}
}
