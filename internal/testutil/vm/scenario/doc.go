// Package scenario holds the tests that boot Debian's kernels under emulation (NETNICE_TEST_VM=1): netnice itself,
// daemon and all, with real traffic. TestGuest and the tests named like it run inside. The figures are those of an
// emulated machine: they show whether limits hold there at all, not how exactly. TestGeneratedTraffic and
// TestEndToEnd, which run only on request, judge as on this machine.
package scenario
