package statefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// Content is the content of a file that is one JSON object with a version, and is always written whole.
type Content interface {
	// Check refuses content that no daemon writes.
	Check() error
}

// SaveObject writes such a file, or removes it. It notes a failure: see IsBehind. The caller holds the lock of the
// content.
func (f *Folder) SaveObject(path string, empty bool, content any) {
	err := f.KeepDamaged(path)
	switch {
	case err != nil:
	case empty:
		err = f.Remove(path)
	default:
		var text []byte
		if text, err = json.Marshal(content); err == nil {
			err = f.Rewrite(path, append(text, '\n'))
		}
	}
	f.Wrote(path, err)
}

// LoadObject reads such a file into content. It returns false if there is no such file, or if the file is damaged. A
// damaged file is kept under another name, and the caller goes on as without one. An error says what to do.
func (f *Folder) LoadObject(path string, newest int, content Content) (found bool, err error) {
	damage, err := ReadObject(path, newest, content)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if damage == nil {
		f.Noted(path)
		return true, nil
	}
	f.FoundDamaged(path, damage)
	f.SaveObject(path, true, nil)
	return false, nil
}

// ReadObject reads a file that is one object with a version. It returns damage apart from err: a damaged file is not an
// error. An error says what to do.
func ReadObject(path string, newest int, content Content) (damage, err error) {
	text, err := ReadTrusted(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, Unusable(path, err)
	}
	damage, err = ParseObject(text, newest, content)
	if err != nil {
		return nil, Unusable(path, err)
	}
	return damage, nil
}

// ParseObject reads the file's text. An error means that a newer netnice has written the file.
func ParseObject(text []byte, newest int, content Content) (damage, err error) {
	var head struct {
		Version int `json:"version"`
	}
	damage = json.Unmarshal(text, &head)
	switch {
	case damage != nil:
	case head.Version > newest:
		return nil, fmt.Errorf("its version is %d, this netnice knows %d", head.Version, newest)
	case head.Version < 1:
		damage = fmt.Errorf("version %d is unknown", head.Version)
	default:
		if damage = Strictly(text, content); damage == nil {
			damage = content.Check()
		}
	}
	return damage, nil
}

// Strictly decodes one value, which must be the whole text.
func Strictly(data []byte, into any) error {
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
