package queuepair

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/enforce/shaping/netdevice"
)

// Each packet that leaves the queue goes on at the CPU that lets it leave, and each CPU has a list of such packets. If
// two CPUs let a burst leave, a later packet of a connection may overtake an earlier one, and TCP sends a chunk again.
// Receive packet steering therefore keeps each connection on one CPU.

// inOrder switches receive packet steering on for the return device. It switches steering off before the device goes,
// as the kernel itself would leave a part of it on. After a failure the device works as without steering.
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

// steer writes the mask, unless the device of that name in /sys belongs to another network namespace.
func steer(link netlink.Link, alias, mask string) bool {
	dir := filepath.Join("/sys/class/net", link.Attrs().Name)
	index, err := os.ReadFile(filepath.Join(dir, "ifindex"))
	if err != nil || strings.TrimSpace(string(index)) != strconv.Itoa(link.Attrs().Index) {
		return false
	}
	of, err := os.ReadFile(filepath.Join(dir, "ifalias"))
	if err != nil || !netdevice.IsAliasOf(strings.TrimSpace(string(of)), alias) {
		return false
	}
	return os.WriteFile(filepath.Join(dir, "queues/rx-0/rps_cpus"), []byte(mask), 0) == nil
}

// withOwnDevices calls fn where /sys has the devices of the daemon's own network namespace. Usually /sys has them, but
// not for a daemon that was started in another network namespace.
func withOwnDevices(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends, and its mounts go with it
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
