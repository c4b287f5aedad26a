// Command genreference writes docs/reference from the code:
//
//	go run ./internal/reference/cmd/genreference ROOT
//
// ROOT is the root of the source.
package main

import (
	"fmt"
	"os"

	"github.com/netnice/netnice/internal/reference"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "genreference: give the root of the source")
		os.Exit(2)
	}
	if err := reference.Write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "genreference:", err)
		os.Exit(1)
	}
}
