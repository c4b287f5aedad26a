package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
)

// Beside the file of the limits there are files for other requested settings. Each is one JSON object, and is always
// written whole.

// besideContent is the content of such a file.
type besideContent interface {
	// Check refuses content that no daemon writes.
	Check() error
}

// saveBeside writes such a file, or removes it. It notes a failure, and the daemon tries again. The caller holds the
// lock of the content.
func (d *Daemon) saveBeside(path string, empty bool, content any) {
	err := d.setAside(d.besides[path])
	switch {
	case err != nil:
	case empty:
		err = d.remove(path)
	default:
		var text []byte
		if text, err = json.Marshal(content); err == nil {
			err = d.rewrite(path, append(text, '\n'))
		}
	}
	d.wrote(path, err)
}

// readBeside reads such a file into content. It returns false if there is no such file, or if the file is damaged. A
// damaged file is kept under another name, and the daemon goes on as without one. An error says what to do.
func (d *Daemon) readBeside(path string, newest int, content besideContent) (found bool, err error) {
	damage, err := readObject(path, newest, content)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if damage == nil {
		d.onDisk.note(path)
		return true, nil
	}
	d.besides[path] = d.foundDamaged(path, damage)
	d.saveBeside(path, true, nil)
	return false, nil
}

// readObject reads a file that is one object with a version. It returns damage apart from err: a damaged file is not an
// error. An error says what to do.
func readObject(path string, newest int, content besideContent) (damage, err error) {
	text, err := readTrusted(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, stateError(path, err)
	}
	damage, err = parseObject(text, newest, content)
	if err != nil {
		return nil, stateError(path, err)
	}
	return damage, nil
}

// parseObject reads the file's text. An error means that a newer netnice has written the file.
func parseObject(text []byte, newest int, content besideContent) (damage, err error) {
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
		if damage = strictly(text, content); damage == nil {
			damage = content.Check()
		}
	}
	return damage, nil
}
