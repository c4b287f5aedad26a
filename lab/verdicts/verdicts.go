// Package verdicts judges the results of the experiments, of one run or of several, and prints a table of the papers'
// figures and ours. It puts the table into lab/README.md, so that no figure is copied by hand. Its exit code is 1 if one
// is missed or was not measured.
package verdicts

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/netnice/netnice/lab/internal/verdict"
)

// begin and end enclose the table in the README.
const begin, end = "<!-- verdicts: begin -->\n", "<!-- verdicts: end -->"

// Main runs the command, and returns its exit code.
func Main(flags *flag.FlagSet, args []string) int {
	out := flags.String("out", filepath.Join("lab", "out"), "`FOLDER` of the figures")
	more := flags.String("runs", "", "`FOLDERS` of the figures of further runs, with commas between: verdicts are then of the median")
	readme := flags.String("readme", "", "`FILE` to put the table into, such as lab/README.md")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	folders := []string{*out}
	if *more != "" {
		folders = append(folders, strings.Split(*more, ",")...)
	}
	missed, err := run(folders, *readme)
	if err != nil {
		fmt.Fprintln(os.Stderr, "verdicts:", err)
	}
	if err != nil || missed {
		return 1
	}
	return 0
}

func run(folders []string, readme string) (missed bool, err error) {
	for _, folder := range folders[1:] { // a mistyped one would go unnoticed
		if _, err := os.Stat(folder); err != nil {
			return false, err
		}
	}
	var list []verdict.Verdict
	var runs []verdict.Run
	for _, experiment := range verdict.Experiments() {
		var files [][]byte
		for _, folder := range folders {
			file, err := os.ReadFile(filepath.Join(folder, experiment+".json"))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return false, err
			}
			files = append(files, file)
			runs = append(runs, verdict.RunOf(experiment, file))
		}
		list = append(list, verdict.Judge(experiment, files...)...)
	}
	for _, v := range list {
		missed = missed || v.Word() == "miss" || v.Word() == "not measured"
	}
	table := verdict.Table(list) + verdict.Runs(runs)
	fmt.Print(table)
	if readme == "" {
		return missed, nil
	}
	text, err := os.ReadFile(readme)
	if err != nil {
		return missed, err
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return missed, fmt.Errorf("%s has no place for the table", readme)
	}
	return missed, os.WriteFile(readme, []byte(before+begin+table+end+after), 0o644)
}
