// Package accounttest has machines with accounts for tests.
package accounttest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/netnice/netnice/internal/account"
)

// TwoPlaces is a machine with the user ann in its files and the user bob in a directory service.
func TwoPlaces(t *testing.T) *account.Directory {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return account.New(account.Options{
		Passwd: put("passwd", "ann:x:1000:1000::/home/ann:/bin/sh\n"),
		Group:  put("group", "ann:x:1000:\nwheel:x:10:ann\nstaff:x:20:bob\n"),
		Getent: []string{put("getent", `#!/bin/sh
case "$*" in
"passwd bob") echo "bob:*:70001:70000:Bob:/home/bob:/bin/sh" ;;
"group eves") echo "eves:*:70009:" ;;
"initgroups bob") echo "bob 70000 70009" ;;
*) exit 2 ;;
esac
`)},
	})
}
