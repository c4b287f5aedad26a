// Command testreport sums up the JSON lines of `go test -json`, which it reads from files: the
// slowest tests, the totals, what failed and what was skipped without a good reason. Its exit
// code is 1 if something failed, or was skipped with -strict.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	strict := flag.Bool("strict", false, "a skipped test is a failure but for the reasons that are allowed")
	show := flag.String("show", "", "print the lines that tests wrote and that have this in them")
	flag.Parse()
	var all []io.Reader
	for _, name := range flag.Args() {
		f, err := os.Open(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		defer f.Close()
		all = append(all, f)
	}
	r, err := read(io.MultiReader(all...), *show)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if !r.print(os.Stdout, *strict) {
		os.Exit(1)
	}
}
