package testutil

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// apartVariable is in the environment of a process in which some of a package's tests run.
const apartVariable = "NETNICE_TEST_APART"

// RunApart runs the tests of a package, whose process is what they limit and so can have one
// of them at a time only, in several processes side by side, each in a network namespace of
// its own. What each prints comes as a whole. In such a process, and without root, it
// returns; elsewhere it ends the program. flags are those of testing, unparsed.
func RunApart(processes int) {
	if os.Getenv(apartVariable) != "" || Privileged() != nil {
		return
	}
	code, err := runApart(processes)
	if err != nil {
		fmt.Fprintln(os.Stderr, "run the tests apart:", err)
		code = 1
	}
	os.Exit(code)
}

func runApart(processes int) (code int, err error) {
	flag.Parse()
	wanted := flag.Lookup("test.run").Value.String()
	lists := make([][]string, processes)
	if strings.Contains(wanted, "/") || flag.Lookup("test.list").Value.String() != "" {
		lists = [][]string{nil}
	} else {
		if wanted == "" {
			wanted = "."
		}
		out, err := exec.Command("/proc/self/exe", "-test.list", wanted).Output()
		if err != nil {
			return 0, fmt.Errorf("list the tests: %w", err)
		}
		i := 0
		for name := range strings.FieldsSeq(string(out)) {
			if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") {
				lists[i%processes] = append(lists[i%processes], name)
				i++
			}
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, names := range lists {
		args := os.Args[1:]
		if len(names) > 0 {
			args = append(args[:len(args):len(args)], "-test.run=^("+strings.Join(names, "|")+")$") // the last counts
		} else if len(lists) > 1 {
			continue
		}
		wg.Go(func() {
			var out bytes.Buffer
			cmd := exec.Command("/proc/self/exe", args...)
			cmd.Args[0] = os.Args[0]
			cmd.Env = append(os.Environ(), apartVariable+"=1")
			cmd.Stdout, cmd.Stderr = &out, &out
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
			err := cmd.Run()
			mu.Lock()
			defer mu.Unlock()
			_, _ = io.Copy(os.Stdout, &out)
			if err != nil {
				code = max(code, cmd.ProcessState.ExitCode(), 1)
			}
		})
	}
	wg.Wait()
	return code, nil
}
