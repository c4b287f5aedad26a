package rules

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Paths of the files of rules:
const (
	DefaultDir = "/etc/netnice"
	fileName   = "netnice.toml"
	// MoreDir is the folder of further files below the administrator's folder.
	MoreDir = "conf.d"
	// OfUser is the path of a user's own file below the home.
	OfUser = ".config/netnice/netnice.toml"
)

// SystemFiles lists the administrator's files in a folder in their order of
// precedence: netnice.toml, then conf.d by name. For a missing folder the list is empty.
func SystemFiles(dir string) ([]string, error) {
	var files []string
	main := filepath.Join(dir, fileName)
	if _, err := os.Stat(main); err == nil {
		files = append(files, main)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	more, err := os.ReadDir(filepath.Join(dir, MoreDir)) // sorted
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range more {
		if filepath.Ext(e.Name()) == ".toml" && !strings.HasPrefix(e.Name(), ".") {
			files = append(files, filepath.Join(dir, MoreDir, e.Name()))
		}
	}
	return files, nil
}

// LoadSystem reads the administrator's files. They and their folders must belong to the
// owner (root), and nobody else may be able to write them. An error has all problems of all
// files, and then no rule counts. The function lookupUser finds a user's id by name or number.
func LoadSystem(dir string, owner uint32, lookupUser func(name string) (uint32, error)) ([]*Rule, error) {
	files, err := SystemFiles(dir)
	if err != nil {
		return nil, Problems{{File: dir, Message: err.Error(), Remedy: "ls -la " + dir}}
	}
	var list []*Rule
	var problems Problems
	if len(files) > 0 {
		problems = untrustedFolders(dir, owner)
	}
	in := Context{LookupUser: lookupUser}
	for _, path := range files {
		some, err := readSystem(path, owner, in)
		if err != nil {
			problems = appendProblem(problems, path, err)
			continue
		}
		list = append(list, some...)
	}
	if len(problems) == 0 {
		problems = checkDestinations(list, mostDestinations)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return list, nil
}

// untrustedFolders returns the mistakes in the rights of the administrator's folders that exist.
func untrustedFolders(dir string, owner uint32) (problems Problems) {
	for _, folder := range []string{dir, filepath.Join(dir, MoreDir)} {
		info, err := os.Stat(folder)
		if err != nil {
			continue
		}
		if p := trusted(folder, info, owner); p != nil {
			problems = append(problems, p)
		}
	}
	return problems
}

// readSystem reads one of the administrator's files.
func readSystem(path string, owner uint32, in Context) ([]*Rule, error) {
	// O_NONBLOCK avoids waiting for the writer of a pipe.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return read(f, path, owner, in)
}

// LoadUser reads a user's own file. Without a file there are no rules. The reader may be root,
// so nothing below the home may be a symbolic link: it could lead to a file that the user may
// not read.
func LoadUser(home string, uid uint32) ([]*Rule, error) {
	path := filepath.Join(home, OfUser)
	f, err := openUser(home)
	switch {
	case err == nil:
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return nil, nil
	case errors.Is(err, unix.ELOOP):
		return nil, linkProblem(path)
	default:
		return nil, Problems{{File: path, Message: err.Error(), Remedy: "ls -la " + path}}
	}
	defer f.Close()
	list, err := read(f, path, uid, Context{OfUser: true})
	if err != nil {
		return nil, appendProblem(nil, path, err)
	}
	return list, nil
}

// linkProblem says that a user's own file is behind a symbolic link.
func linkProblem(path string) Problems {
	return Problems{{File: path, Message: "there is a symbolic link on the way, which is not followed", Remedy: "put the file itself there"}}
}

// openUser opens a user's own file, and follows no symbolic link.
func openUser(home string) (*os.File, error) {
	dir, err := unix.Open(home, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, OfUser, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), filepath.Join(home, OfUser)), nil
}

// read checks the owner of a file, and parses it.
func read(f *os.File, path string, owner uint32, in Context) ([]*Rule, error) {
	text, err := readText(f, path, owner, in)
	if err != nil {
		return nil, err
	}
	return Parse(path, text, in)
}

// readText checks the owner of a file, and returns its text, at most one byte more than the allowed size.
func readText(f *os.File, path string, owner uint32, in Context) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, Problems{{File: path, Message: "this is no regular file", Remedy: "ls -la " + path}}
	}
	if p := trusted(path, info, owner); p != nil {
		return nil, Problems{p}
	}
	most := int64(MaxBytes)
	if in.OfUser {
		most = MaxUserBytes
	}
	return io.ReadAll(io.LimitReader(f, most+1))
}

// trusted returns the mistake in the rights of a file or folder, nil if there is none.
func trusted(path string, info fs.FileInfo, owner uint32) *Problem {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return &Problem{File: path, Message: "whose it is cannot be told", Remedy: "ls -la " + path}
	}
	uid := st.Uid
	switch {
	case uid != owner:
		return &Problem{File: path, Message: fmt.Sprintf("it belongs to uid %d, not to uid %d", uid, owner), Remedy: fmt.Sprintf("chown %d %s", owner, path)}
	case info.Mode().Perm()&0o022 != 0:
		return &Problem{File: path, Message: fmt.Sprintf("others than its owner may write it (%v)", info.Mode().Perm()), Remedy: "chmod go-w " + path}
	}
	return nil
}

func appendProblem(list Problems, path string, err error) Problems {
	var some Problems
	if errors.As(err, &some) {
		return append(list, some...)
	}
	return append(list, &Problem{File: path, Message: err.Error(), Remedy: "ls -la " + path})
}

// SystemStamp changes when one of the administrator's files does.
func SystemStamp(dir string) string {
	var b strings.Builder
	stamp := func(path string) {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			fmt.Fprintf(&b, "%s %v\n", path, err)
			return
		}
		b.WriteString(path)
		writeStamp(&b, &st)
	}
	stamp(dir)
	stamp(filepath.Join(dir, MoreDir))
	files, err := SystemFiles(dir)
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	for _, path := range files {
		stamp(path)
	}
	return b.String()
}

// UserStamp changes when a user's own file does. It is "" if there is no such file.
func UserStamp(home string) string {
	f, err := openUser(home)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return ""
	case err != nil:
		return err.Error()
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err.Error()
	}
	var b strings.Builder
	writeStamp(&b, &st)
	return b.String()
}

func writeStamp(b *strings.Builder, st *unix.Stat_t) {
	fmt.Fprintln(b, "", st.Dev, st.Ino, st.Size, st.Mode, st.Uid, st.Mtim.Nano(), st.Ctim.Nano())
}
