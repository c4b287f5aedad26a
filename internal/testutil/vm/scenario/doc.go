// Package scenario holds the tests that boot Debian's kernels under emulation
// (NETNICE_TEST_VM=1): netnice itself, daemon and all, with real traffic. TestGuest
// and those named like it run inside. The figures are those of an emulated
// machine: they ask whether limits hold there at all, not how exactly.
// TestGeneratedTraffic and TestEndToEnd, which run only when asked, judge as on this machine.
package scenario
