// Package scenario holds one test: netnice itself, daemon and all, on Debian's
// kernels under emulation, with real traffic. The figures are those of an
// emulated machine: the test asks whether limits hold there at all, not how
// exactly.
package scenario
