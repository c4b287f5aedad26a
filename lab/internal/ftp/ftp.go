// Package ftp serves a file by vsftpd, alone or under fair-inetd, and identifies the downloads' connections.
package ftp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/capture"
)

const (
	program = "/usr/sbin/vsftpd"
	port    = 21
	size    = 128 << 20 // bytes of the file
	large   = 100_000   // bytes: a download's data connection, not its control connection

	// Path is the path of the file.
	Path = "file"
	// Name names the server and the client.
	Name = "vsftpd and curl"
)

// Server is a file and the configuration of its server.
type Server struct {
	b     *bed.Bed
	inetd string // inetd.conf
	alone string // vsftpd.conf
}

// New makes the file, and a configuration with other services beside FTP, a line each.
func New(b *bed.Bed, others string) (s Server, err error) {
	if _, err := os.Stat(program); err != nil {
		return s, fmt.Errorf("%w (apt-get install vsftpd)", err)
	}
	dir, err := os.MkdirTemp("", "netnice-lab-ftp-")
	if err != nil {
		return s, fmt.Errorf("make folder to serve: %w", err)
	}
	b.Defer(func() error { return os.RemoveAll(dir) })
	root, empty := filepath.Join(dir, "pub"), filepath.Join(dir, "empty")
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(root, 0o555), os.Mkdir(empty, 0o555))
	if err != nil {
		return s, err
	}
	file, err := os.Create(filepath.Join(root, Path))
	if err == nil {
		err = errors.Join(file.Truncate(size), file.Close())
	}
	settings := "anonymous_enable=YES\nno_anon_password=YES\nanon_root=" + root + "\nsecure_chroot_dir=" + empty + "\nseccomp_sandbox=NO\n"
	s = Server{b: b, inetd: filepath.Join(dir, "inetd.conf"), alone: filepath.Join(dir, "alone.conf")}
	each := filepath.Join(dir, "each.conf")
	return s, errors.Join(err,
		os.WriteFile(each, []byte("listen=NO\n"+settings), 0o600),
		os.WriteFile(s.alone, []byte("listen=YES\nbackground=NO\n"+settings), 0o600),
		os.WriteFile(s.inetd, []byte("ftp stream tcp nowait root "+program+" vsftpd "+each+"\n"+others), 0o644))
}

// ByInetd serves under netnice's inetd, with flags, until the process is killed.
func (s Server) ByInetd(ctx context.Context, n *testbed.NetNS, flags ...string) (*exec.Cmd, error) {
	args := append(append([]string{"--socket", s.b.Socket(), "inetd"}, flags...), s.inetd)
	return s.start(ctx, n, s.b.Program(), args...)
}

// Alone serves without inetd.
func (s Server) Alone(ctx context.Context, n *testbed.NetNS) (*exec.Cmd, error) {
	return s.start(ctx, n, program, s.alone)
}

func (s Server) start(ctx context.Context, n *testbed.NetNS, name string, args ...string) (*exec.Cmd, error) {
	cmd, err := s.b.Start(n, name, args...)
	if err != nil {
		return nil, err
	}
	return cmd, bed.WaitForPort(ctx, n, port)
}

// Downloads returns the senders' ports of large connections, in the order in which they began.
func Downloads(packets []capture.Packet) (ports []uint16) {
	bytes := map[uint16]int{}
	for _, p := range packets {
		if p.From == port {
			continue
		}
		before := bytes[p.From]
		bytes[p.From] += p.Bytes
		if before < large && bytes[p.From] >= large {
			ports = append(ports, p.From)
		}
	}
	return ports
}
