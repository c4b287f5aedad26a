// Package systemd tests netnice's package and units where systemd is: on a whole
// Debian 12 under emulation, which is installed (debootstrap) and kept in the user's
// cache. It has no code but tests; `make test-systemd` runs them, and takes 5 to 15
// minutes. Nothing of the machine's own is changed.
package systemd
