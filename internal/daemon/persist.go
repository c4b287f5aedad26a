package daemon

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
)

// Limits on users, cgroups, units, containers and the host are in force again after a reboot, unless their owner said
// --persist=false. A limit on a process never comes back, as the process does not.

// checkPersist refuses --persist where the limit cannot outlive a reboot.
func (d *Daemon) checkPersist(req api.SetRequest, res identity.Resolved, n *node) error {
	if req.Wish.Persist == nil || !*req.Wish.Persist {
		return nil
	}
	if res.Kind == enforce.KindTree || req.Scope || n != nil && n.scope != nil {
		return &api.Error{
			Code:    api.CodeBadRequest,
			Message: fmt.Sprintf("%s does not outlive a reboot, and so its limit cannot", req.Subject),
			Hint:    "write a rule for its program (man netnice.toml), or limit its user or its unit: netnice set --unit NAME --persist ...",
		}
	}
	if d.opts.OnDemand {
		return &api.Error{
			Code:    api.CodeConflict,
			Message: "this daemon was started on demand, and keeps nothing over a reboot",
			Hint:    "sudo systemctl enable --now netnice, or: sudo netnice up",
		}
	}
	return nil
}

// forgetBoot removes the limits that were requested until the next reboot, and reports whether there were any.
func (n *node) forgetBoot() bool {
	had := false
	for owner, w := range n.Requested {
		if w.UntilReboot {
			n.Requested[owner], had = limit.Limit{}, true
		}
	}
	return had
}

const (
	systemdFolder = "/run/systemd/system"
	enabledUnits  = "/etc/systemd/system/*.wants/netnice.service"
)

// atBoot names the step that makes a daemon start at boot, "" if systemd starts one. The parameters are the folder that
// shows that systemd runs, and the pattern of enabled units.
func atBoot(systemd, enabled string) string {
	if _, err := os.Stat(systemd); err != nil {
		return "have `netnice daemon` started at boot, before the network"
	}
	if list, err := filepath.Glob(enabled); err == nil && len(list) > 0 {
		return ""
	}
	return "sudo systemctl enable netnice"
}
