package daemon

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/cpushare"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/statefile"
)

// cpuShareHost is what the CPU shares need from the daemon. The lock of their table is taken before d.mu.
type cpuShareHost struct{ *Daemon }

var _ cpushare.Host = cpuShareHost{}

func (d *Daemon) cpuSharePath() string { return filepath.Join(d.opts.StateDir, cpushare.FileName) }

// Save implements cpushare.Host.
func (h cpuShareHost) Save(isEmpty bool, content *cpushare.Saved) {
	h.files.SaveObject(h.cpuSharePath(), isEmpty, content)
}

// Load implements cpushare.Host.
func (h cpuShareHost) Load(content *cpushare.Saved) (found bool, err error) {
	return h.files.LoadObject(h.cpuSharePath(), cpushare.StateVersion, content)
}

// Unwritten implements cpushare.Host.
func (h cpuShareHost) Unwritten(lifts bool) []string {
	return h.unwrittenWarnings(h.cpuSharePath(), lifts)
}

// CountsAs implements cpushare.Host.
func (h cpuShareHost) CountsAs(uid uint32) uint32 { return h.countsAs(uid) }

// MustStayIn implements cpushare.Host.
func (h cpuShareHost) MustStayIn(by auth.Actor, origin, slice string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leftByUser(by, origin, slice)
}

// SentBytes implements cpushare.Host.
func (h cpuShareHost) SentBytes(pid int, startNS uint64) (bytes uint64, ok bool) {
	h.mu.Lock()
	var id uint32
	if n := h.nodes.Find(identity.Resolved{Kind: enforce.KindTree, Key: uint64(pid), StartBoottimeNS: startNS}); n != nil {
		id = n.id
	}
	h.mu.Unlock()
	if id == 0 {
		return 0, false
	}
	now, err := h.observe.FiguresOf(id)
	return now.Nodes[id].Bytes, err == nil
}

// Publish implements cpushare.Host.
func (h cpuShareHost) Publish(uids [2]uint32, event func() api.Event) { h.publishEvent(uids, event) }

// ProgramDue implements cpushare.Host.
func (h cpuShareHost) ProgramDue() { h.programDue() }

// SetPower implements apiserver.Backend.
func (d *Daemon) SetPower(ctx context.Context, by auth.Actor, req api.PowerRequest) (api.PowerResponse, error) {
	return d.cpuShares.Set(ctx, by, req)
}

// Powers implements apiserver.Backend.
func (d *Daemon) Powers(context.Context) (api.PowerList, error) { return d.cpuShares.List(), nil }

// LiftPowers removes the groups of CPU shares that a daemon has left, and their file, where no daemon can start. find
// finds the machine's mechanism, nil = cpu.Find. After a failure the file stays.
func LiftPowers(ctx context.Context, stateDir string, find func(cpu.Scopes) (cpushare.Processors, error)) error {
	if find == nil {
		find = func(s cpu.Scopes) (cpushare.Processors, error) { return cpu.Find(s) }
	}
	path := filepath.Join(stateDir, cpushare.FileName)
	var s cpushare.Saved
	damage, err := statefile.ReadObject(path, cpushare.StateVersion, &s)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case damage != nil:
		return statefile.Unusable(path, damage)
	}
	processors, err := find(identity.SystemBus{})
	if err == nil {
		err = cpushare.LiftLeft(ctx, processors, &s)
	}
	if err != nil {
		return err // the file says what is left
	}
	return statefile.RemoveFile(path)
}
