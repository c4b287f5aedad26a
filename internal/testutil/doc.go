// Package testutil is for privileged tests: which of them run in a stage (SkipUnlessAll, Subset), in a process of their own
// (RunSharded), and in a test bed (MustPair; package testbed). Supervise ends the processes that earlier runs of the same
// tests left. Traffic from random seeds is in package trafficgen, emulated kernels are in package vm.
//
// A test calls RequireRoot, SkipUnlessAll and Subset. A TestMain calls testbed.MaybeRunTraffic, Supervise and RunSharded.
package testutil
