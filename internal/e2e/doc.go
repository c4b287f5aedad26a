// Package e2e proves netnice's promises on the built program itself: its tests run `netnice` as users do, on real
// traffic between network namespaces of their own. It holds tests only, and no package imports it.
//
// Almost every test has a stage of its own: a mount namespace in which /run, /var/lib, /var/log and /sys/fs/bpf are empty.
// A daemon with netnice's usual paths disturbs neither another test nor the machine's own daemon. A test leaves
// nothing behind even if it is killed. Runs of these tests on one machine share it by file locks, since limits of
// the host and of root affect all of them.
//
// A meter in the kernel measures TCP egress, and the receiver measures received traffic. A counter at the device
// measures attempts to get around a limit. The tests measure again if a rate falls short while the machine was busy
// or stood still. In holds and near a rate above its limit has no excuse. docs/internals/testing.md has the rest.
package e2e
