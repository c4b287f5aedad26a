package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/testutil"
	"github.com/netnice/netnice/internal/testutil/trafficgen"
)

// progressVariable names the environment variable with the name of a file in which a long run of TestGenerated or
// TestGeneratedReceiving keeps how far it has come.
const progressVariable = "NETNICE_TEST_PROGRESS"

// lastSeed is how long before the end of its time a long run begins its last seed.
const lastSeed = 3 * time.Minute

// progress is the state of a long run. Several runs one after the other add up.
type progress struct {
	Test    string  `json:"test"`
	Next    uint64  `json:"next"` // seed
	Seeds   int     `json:"seeds"`
	Seconds float64 `json:"seconds"`
	Failed  []fault `json:"failed"`
}

// fault is a seed that failed, and the smallest program found that does.
type fault struct {
	Seed    uint64              `json:"seed"`
	Error   string              `json:"error"`
	Program *trafficgen.Program `json:"program,omitempty"` // nil if the seed did not even run to its end
}

// readProgress returns what a file holds, or the beginning if there is none.
func readProgress(path, test string) (p progress, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return progress{Test: test, Next: 1}, nil
	}
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("read %s: %w", path, err)
	}
	if p.Test != test {
		return p, fmt.Errorf("%s is the progress of %s: name another file", path, p.Test)
	}
	return p, nil
}

// write replaces the file as a whole, so that a run that is killed leaves one state or the next.
func (p progress) write(path string) error {
	text, err := json.MarshalIndent(p, "", "\t")
	if err != nil {
		return err
	}
	next := path + ".next"
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// goOn runs seeds from where the file that the environment names says, until its time is over, and reports whether there is
// such a file. It does not end at a seed that fails. Each seed has a daemon and namespaces of its own.
func goOn(t *testing.T, receives bool, random func(seed uint64) trafficgen.Program) bool {
	t.Helper()
	path := os.Getenv(progressVariable)
	if path == "" {
		return false
	}
	testutil.RequireRoot(t)
	p, err := readProgress(path, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	cover := trafficgen.NewCoverage()
	for end, bounded := t.Deadline(); !bounded || time.Until(end) > lastSeed; {
		begin := time.Now()
		found := fault{Seed: p.Next, Error: "it did not run to its end"}
		t.Run(fmt.Sprintf("seed_%d", p.Next), func(t *testing.T) {
			g := newGenerated(t, receives)
			program := random(p.Next)
			t.Logf("seed %d: %v", p.Next, program)
			err := g.judged(program)
			cover.Add(program, g.refused)
			if found.Error = ""; err == nil {
				return
			}
			found.Error = err.Error()
			small := g.shrunk(program, 10)
			found.Program = &small
			t.Errorf("seed %d: %v", p.Next, err)
		})
		if found.Error != "" {
			p.Failed = append(p.Failed, found)
		}
		p.Next++
		p.Seeds++
		p.Seconds += time.Since(begin).Seconds()
		if err := p.write(path); err != nil {
			t.Fatal(err)
		}
	}
	t.Log(cover)
	t.Logf("%d seeds in %.2f hours, %d failed; %s holds them and goes on at seed %d", p.Seeds, p.Seconds/3600, len(p.Failed), path, p.Next)
	return true
}

// FuzzGenerated has the fuzzer choose seeds of programs that send. Workers take turns, as floods take all processors.
func FuzzGenerated(f *testing.F) {
	f.Fuzz(func(t *testing.T, seed uint64) {
		machineAlone(t)
		top, _, _ := strings.Cut(t.Name(), "/") // the stage asks by this name
		exclusive.Store(top, true)
		t.Cleanup(func() { exclusive.Delete(top) })
		g := newGenerated(t, false)
		p := trafficgen.New(seed)
		if err := g.judged(p); err != nil {
			small := g.shrunk(p, 10)
			text, _ := json.Marshal(small) // cannot fail: the program holds maps of strings
			t.Errorf("seed %d: %v\n%v\nis wrong, and so is: %v\n%s", seed, err, p, small, text)
		}
	})
}

// A long run that was stopped goes on at the next seed, and keeps the seeds that have failed.
func TestProgressIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "progress")
	p, err := readProgress(path, "TestX")
	require.NoError(t, err)
	require.Equal(t, progress{Test: "TestX", Next: 1}, p)
	program := trafficgen.New(7)
	p.Next, p.Seeds, p.Seconds, p.Failed = 8, 7, 36.5, []fault{{Seed: 7, Error: "too much", Program: &program}, {Seed: 3}}
	require.NoError(t, p.write(path))
	again, err := readProgress(path, "TestX")
	require.NoError(t, err)
	require.Equal(t, p, again)
	_, err = readProgress(path, "TestY")
	require.ErrorContains(t, err, "TestX")
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err = readProgress(path, "TestX")
	require.Error(t, err)
}
