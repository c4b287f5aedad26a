// Package systemd tests netnice's package and units with systemd, on a whole Debian 12 under emulation. The package
// installs that system (debootstrap) and keeps it in the user's cache. It has no code but tests. `make test-systemd`
// runs them, and takes 5 to 15 minutes. It changes nothing of the machine itself.
package systemd
