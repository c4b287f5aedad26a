// Command netnice limits the bandwidth of processes, users and cgroups.
package main

import (
	"os"

	"github.com/netnice/netnice/internal/cli"
)

func main() { os.Exit(cli.Main()) }
