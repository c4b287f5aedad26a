// Command netnice limits the bandwidth of processes, users and cgroups. It connects the CLI with the daemon, the kernel
// side and the demo, and has no logic of its own.
package main

import (
	"context"
	"os"
	"runtime"

	"github.com/netnice/netnice/internal/testbed"
)

func main() {
	// `netnice run` is to become its command on the thread that the process
	// began with: an exec from another thread gives the process another task in
	// the kernel, and the limit would have to find it first.
	runtime.LockOSThread()
	testbed.MaybeRunTraffic() // the demo's senders and receivers are this same program
	os.Exit(app().Run(context.Background(), os.Args))
}
