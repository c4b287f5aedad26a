package identity

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/netnamespace"
)

// Sockets lists the sockets that a process has open: inode to descriptors.
func (r *Resolver) Sockets(pid int) (map[uint64][]int, error) {
	dir := r.file(pid, "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		if notThere(err) {
			return nil, notFound(fmt.Sprintf("process %d has ended", pid), "ps -e")
		}
		return nil, fmt.Errorf("list the files of process %d: %w", pid, err)
	}
	out := make(map[uint64][]int)
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// A file that was closed meanwhile has no link any more.
		if link, err := os.Readlink(dir + "/" + e.Name()); err == nil {
			if inode, ok := enforce.SocketInode(link); ok {
				out[inode] = append(out[inode], fd)
			}
		}
	}
	return out, nil
}

// PacketSockets has the inodes of the packet sockets in a process's network namespace.
func (r *Resolver) PacketSockets(pid int) map[uint64]bool {
	return netnamespace.PacketSockets(r.file(pid, ""))
}

// HasDatagramSocket reports whether a process has a socket open by which it may send what is no TCP by the network. It
// costs what the process has open.
func (r *Resolver) HasDatagramSocket(pid int) (bool, error) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return false, notFound(fmt.Sprintf("process %d has ended", pid), "ps -e")
	}
	if err != nil {
		return false, fmt.Errorf("look at process %d: %w", pid, err)
	}
	defer unix.Close(pidfd)
	sockets, err := r.Sockets(pid)
	if err != nil {
		return false, err
	}
	var failed error
	for _, files := range sockets {
		fd, err := unix.PidfdGetfd(pidfd, files[0], 0)
		if errors.Is(err, unix.EBADF) {
			continue // it was closed meanwhile
		}
		if err != nil {
			failed = fmt.Errorf("look at a socket of process %d: %w", pid, err)
			continue
		}
		is := isDatagramSocket(fd)
		_ = unix.Close(fd)
		if is {
			return true, nil
		}
	}
	return false, failed
}

// isDatagramSocket reports that of a descriptor of this process.
func isDatagramSocket(fd int) bool {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return false // no socket
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return false
	}
	switch domain {
	case unix.AF_INET, unix.AF_INET6:
		return kind != unix.SOCK_STREAM
	case unix.AF_PACKET:
		return true
	}
	return false
}

// Socket returns the inode of the socket that a descriptor of a process is.
func (r *Resolver) Socket(pid, fd int) (uint64, error) {
	hint := fmt.Sprintf("sudo ls -l /proc/%d/fd", pid)
	link, err := os.Readlink(r.file(pid, "fd/"+strconv.Itoa(fd)))
	if err != nil {
		if notThere(err) {
			return 0, notFound(fmt.Sprintf("process %d has no file %d open", pid, fd), hint)
		}
		return 0, fmt.Errorf("read file %d of process %d: %w", fd, pid, err)
	}
	inode, ok := enforce.SocketInode(link)
	if !ok {
		return 0, &api.Error{
			Code: api.CodeBadRequest, Message: fmt.Sprintf("file %d of process %d is no socket, but %s", fd, pid, link), Hint: hint,
		}
	}
	return inode, nil
}
