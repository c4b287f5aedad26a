package auth

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The man page has the tables as the code has them.
func TestManPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/man/netnice.7")
	require.NoError(t, err)
	text := string(page)
	require.NotRegexp(t, "@[A-Z]", text)
	var rights, quotas []string
	for _, r := range Table() {
		rights = append(rights, fmt.Sprintf("T{\n%s\nT}|%s", strings.ReplaceAll(r.What, "-", `\-`), r.Who))
	}
	for _, q := range Quotas() {
		quotas = append(quotas, fmt.Sprintf("T{\n%s\nT}|%s", q.Of, q.Figure))
	}
	require.Contains(t, text, "What|Who may\n_\n"+strings.Join(rights, "\n")+"\n.TE\n", "the table of rights")
	require.Contains(t, text, "Of|At most\n_\n"+strings.Join(quotas, "\n")+"\n.TE\n", "the table of quotas")
	require.Contains(t, text, fmt.Sprintf("wait for up to %.0f s", MaxRequestWait.Seconds()))
	require.Contains(t, text, fmt.Sprintf("counts as %d, one that looks for a unit or container as %d", ReloadCost, SearchCost))
	require.Contains(t, text, fmt.Sprintf("one more for each %d bytes", BytesPerCount))
}
