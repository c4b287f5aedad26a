package testutil

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
)

// shardVariable is in the environment of a process that runs a part of a package's tests.
const shardVariable = "NETNICE_TEST_SHARD"

// RunSharded runs each test of a package in a process and a network namespace of its own, some
// processes in parallel. It is for tests that limit their own process. Tests that limit all
// processes run last, in one process: alone matches their names. The output of each process is
// printed when it has ended. RunSharded returns in those processes, and without root; elsewhere
// it ends the program.
func RunSharded(processes int, alone string) {
	if os.Getenv(shardVariable) != "" || Privileged() != nil {
		return
	}
	code, err := runSharded(processes, regexp.MustCompile(alone))
	if err != nil {
		fmt.Fprintln(os.Stderr, "run the tests in several processes:", err)
		code = 1
	}
	os.Exit(code)
}

func runSharded(processes int, alone *regexp.Regexp) (code int, err error) {
	flag.Parse()
	wanted := flag.Lookup("test.run").Value.String()
	if strings.Contains(wanted, "/") || flag.Lookup("test.list").Value.String() != "" {
		return runShards([][]string{nil}, 1), nil
	}
	if wanted == "" {
		wanted = "."
	}
	out, err := exec.Command("/proc/self/exe", "-test.list", wanted).Output()
	if err != nil {
		return 0, fmt.Errorf("list the tests: %w", err)
	}
	var last []string
	var shards [][]string
	for name := range strings.FieldsSeq(string(out)) {
		switch {
		case !strings.HasPrefix(name, "Test") && !strings.HasPrefix(name, "Fuzz"):
		case alone.MatchString(name):
			last = append(last, name)
		default:
			shards = append(shards, []string{name})
		}
	}
	code = runShards(shards, processes)
	if last != nil {
		code = max(code, runShards([][]string{last}, 1))
	}
	return code, nil
}

// runShards runs each list of tests in a process, up to processes of them in parallel, and returns the highest exit
// code. The list nil stands for the tests of the command line.
func runShards(shards [][]string, processes int) (code int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	free := make(chan struct{}, processes)
	for _, names := range shards {
		args := os.Args[1:]
		if names != nil {
			args = append(args[:len(args):len(args)], "-test.run=^("+strings.Join(names, "|")+")$") // the last one counts
		}
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			var out bytes.Buffer
			cmd := exec.Command("/proc/self/exe", args...)
			cmd.Args[0] = os.Args[0]
			cmd.Env = append(os.Environ(), shardVariable+"=1")
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
	return code
}
