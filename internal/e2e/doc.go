// Package e2e proves what netnice promises on the built program itself: its
// tests run `netnice` as users do, on real traffic between network namespaces
// of their own. It holds tests only and is imported by nobody.
//
// Every test is a stage of its own: a mount namespace in which /run, /var/lib,
// /var/log and /sys/fs/bpf are empty, so that a daemon with netnice's usual
// paths disturbs neither another test nor the machine's own daemon, and leaves
// nothing behind even if it is killed. Runs of these tests on one machine share
// it by file locks, since limits of the host and of root hold for all.
//
// What TCP sends is measured by a meter in the kernel, what is received by the
// receiver, what tries to get around a limit at the device. What falls short while
// the machine was busy or stood still is looked at again; for holds and near what
// is above its limit has no excuse. docs/internals/testing.md has the rest.
package e2e
