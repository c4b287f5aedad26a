#!/bin/sh
# Before the files go. Its argument is how many packages are left. Without the program nobody could lift what
# stands in the kernel, so it is lifted now; the units go first, for the socket would start the daemon again.
[ "$1" -eq 0 ] || exit 0
if [ -d /run/systemd/system ]; then
	systemctl disable --now netnice.socket netnice.service >/dev/null 2>&1 || :
fi
netnice down >/dev/null 2>&1 || :
