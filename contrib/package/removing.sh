#!/bin/sh
# Before the files go: deb calls it with "remove" or "upgrade", rpm with how many
# packages are left. Without the program nobody could lift what stands in the
# kernel, so it is lifted now; the units go first, for the socket would start the
# daemon again.
set -e
case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl disable --now netnice.socket netnice.service >/dev/null 2>&1 || true
fi
netnice down >/dev/null 2>&1 || true
