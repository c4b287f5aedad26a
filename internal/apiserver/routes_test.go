package apiserver

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
)

// The server serves each route of the table by its own method, and takes no other parameters than the table's.
func TestRoutes(t *testing.T) {
	known := make(map[string]bool)
	for _, r := range Routes() {
		require.False(t, known[r.Method+r.Path], "%s %s twice", r.Method, r.Path)
		known[r.Method+r.Path] = true
		require.NotNil(t, r.Answer, r.Path)
		b := &backend{}
		status, e := call(b, r.Method, r.Path+"?surprise=1", "")
		require.Equal(t, http.StatusBadRequest, status, "%s %s", r.Method, r.Path)
		require.Contains(t, e.Message, "surprise")
		require.Empty(t, b.asked)
		status, e = call(b, http.MethodPatch, r.Path, "")
		require.Equal(t, http.StatusNotFound, status, r.Path)
		require.Equal(t, api.CodeNotFound, e.Code)
		for _, p := range r.Query {
			status, e = call(b, r.Method, r.Path+"?"+p.Name+"=%00", "")
			require.NotContains(t, e.Message, "unknown parameter", "%s %s: %d", r.Method, r.Path, status)
		}
	}
}
