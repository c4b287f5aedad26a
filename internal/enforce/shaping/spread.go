package shaping

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The kernel gives what leaves the queue to whatever CPU lets it go, each of which has a
// backlog: of a burst that two let go, a later packet of a connection may overtake an
// earlier one, and TCP sends a chunk again. So receive packet steering keeps each
// connection on one CPU.

// inOrder switches that on for the return device, or off before it goes: the kernel
// itself would leave a part of it on. What cannot be set is as good as it was.
func inOrder(link netlink.Link, alias string, on bool) {
	mask := "0"
	if on {
		var cpus unix.CPUSet
		if unix.SchedGetaffinity(0, &cpus) != nil || cpus.Count() < 2 {
			return
		}
		mask = cpuMask(&cpus)
	}
	if !steer(link, alias, mask) {
		withOwnDevices(func() { steer(link, alias, mask) })
	}
}

// steer writes the mask, unless the device that /sys has by that name is another
// namespace's.
func steer(link netlink.Link, alias, mask string) bool {
	dir := filepath.Join("/sys/class/net", link.Attrs().Name)
	index, err := os.ReadFile(filepath.Join(dir, "ifindex"))
	if err != nil || strings.TrimSpace(string(index)) != strconv.Itoa(link.Attrs().Index) {
		return false
	}
	of, err := os.ReadFile(filepath.Join(dir, "ifalias"))
	if err != nil || strings.TrimSpace(string(of)) != alias {
		return false
	}
	return os.WriteFile(filepath.Join(dir, "queues/rx-0/rps_cpus"), []byte(mask), 0) == nil
}

// withOwnDevices calls fn where /sys has the devices of the daemon's own network
// namespace: as a rule it has them, but not for a daemon that was started in another.
func withOwnDevices(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends, and what it mounts goes with it
		if unix.Unshare(unix.CLONE_NEWNS) == nil &&
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") == nil &&
			unix.Mount("sysfs", "/sys", "sysfs", 0, "") == nil {
			fn()
		}
	}()
	<-done
}

// cpuMask writes a set as sysfs reads it: words of 32 bits, the highest first.
func cpuMask(cpus *unix.CPUSet) string {
	var words []string
	for at := 0; at < 64*len(cpus); at += 32 {
		word := uint32(0)
		for bit := range 32 {
			if cpus.IsSet(at + bit) {
				word |= 1 << bit
			}
		}
		words = append([]string{fmt.Sprintf("%08x", word)}, words...)
	}
	for len(words) > 1 && words[0] == "00000000" {
		words = words[1:]
	}
	return strings.Join(words, ",")
}
