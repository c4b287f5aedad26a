package apiserver

import (
	"net/http"
	"strconv"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
)

// reloadPath is the call that reads rule files, which costs more than others.
const reloadPath = "/v1/rules/reload"

func (s server) testRules(by auth.Actor, r *http.Request) (api.RuleTest, error) {
	pid, err := queryPID(r)
	if err != nil {
		return api.RuleTest{}, err
	}
	return s.TestRules(r.Context(), by, pid)
}

// queryPID reads the process that a call is about.
func queryPID(r *http.Request) (int, error) {
	text := r.URL.Query().Get("pid")
	pid, err := strconv.Atoi(text)
	if err != nil || pid < 1 {
		return 0, badRequest("pid=%q: want the number of a process", text)
	}
	return pid, nil
}
