package clienttest

import (
	"net/http"

	"github.com/netnice/netnice/api"
)

// SetRules sets the answers to calls about rules.
func (d *Daemon) SetRules(list api.RuleList, test api.RuleTest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rules, d.test = list, test
}

func (d *Daemon) getRules(w http.ResponseWriter, _ *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	answer(w, http.StatusOK, d.rules)
}

func (d *Daemon) getRulesTest(w http.ResponseWriter, _ *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	answer(w, http.StatusOK, d.test)
}
