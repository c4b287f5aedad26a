// Command testreport sums up the JSON lines of `go test -json`, which it reads from files. It prints the slowest
// tests, the totals, the failures and the tests that were skipped without a good reason. Its exit code is 1 if a
// test failed, or was skipped with -strict, and 2 if it cannot read.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
)

func main() {
	strict := flag.Bool("strict", false, "a skipped test is a failure but for the reasons that are allowed")
	show := flag.String("show", "", "print the lines that tests wrote and that have this in them")
	flag.Parse()
	var all bytes.Buffer
	for _, name := range flag.Args() {
		text, err := os.ReadFile(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		all.Write(text)
	}
	r, err := read(&all, *show)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if !r.print(os.Stdout, *strict) {
		os.Exit(1)
	}
}
