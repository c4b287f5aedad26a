package identity

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

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
		if inode, ok := openSocket(dir, e.Name()); ok {
			out[inode] = append(out[inode], fd)
		}
	}
	return out, nil
}

// openSocket returns the inode of a process's descriptor that is a socket. A descriptor that was closed meanwhile has
// no link any more, and counts as no socket.
func openSocket(dir, name string) (inode uint64, ok bool) {
	link, err := os.Readlink(filepath.Join(dir, name))
	if err != nil {
		return 0, false
	}
	return enforce.SocketInode(link)
}

// PacketSockets returns the inodes of the packet sockets in a process's network namespace.
func (r *Resolver) PacketSockets(pid int) map[uint64]bool {
	return netnamespace.PacketSockets(r.file(pid, ""))
}

// InetSockets calls f for each socket of a process's network namespace.
func (r *Resolver) InetSockets(pid int, f func(netnamespace.InetSocket)) error {
	return netnamespace.InetSockets(r.file(pid, ""), f)
}

// maxFilesLooked bounds how many descriptors of a process are examined, because a process may have a million.
const maxFilesLooked = 4096

// HasDatagramSocket reports whether a process has an open non-TCP socket that has sent to the network, or may receive
// from it. The result is also true for a process with more than maxFilesLooked descriptors. The method does not
// duplicate descriptors of the process: closing the last descriptor of a TCP socket may block until its data is sent.
func (r *Resolver) HasDatagramSocket(pid int) (bool, error) {
	dir, err := os.Open(r.file(pid, "fd"))
	if err != nil {
		if notThere(err) {
			return false, notFound(fmt.Sprintf("process %d has ended", pid), "ps -e")
		}
		return false, fmt.Errorf("list the files of process %d: %w", pid, err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxFilesLooked + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("list the files of process %d: %w", pid, err)
	}
	if len(names) > maxFilesLooked {
		return true, nil
	}
	datagrams := netnamespace.DatagramSockets(r.file(pid, ""))
	for _, name := range names {
		if inode, ok := openSocket(dir.Name(), name); ok && datagrams[inode] {
			return true, nil
		}
	}
	return false, nil
}

// Socket returns the inode of the socket behind a descriptor of a process.
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
