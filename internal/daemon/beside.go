package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
)

// Beside the file of the limits there are files of what else is wanted, each an object that is
// written whole.

// besideContent is what is in such a file.
type besideContent interface {
	// check refuses what no daemon writes.
	check() error
}

// saveBeside writes such a file, or removes it. A failure is noted, and it is tried again. The caller
// holds the lock of what is in it.
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

// readBeside reads such a file into content. It is false if there is none, or none that is whole: that is
// kept under another name, and the daemon goes on as if there were none. An error says what to do.
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

// readObject reads a file that is one object with a version. What is damaged is no error; an error
// says what to do.
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

// parseObject reads the file's text. An error is a file of a newer netnice.
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
			damage = content.check()
		}
	}
	return damage, nil
}
