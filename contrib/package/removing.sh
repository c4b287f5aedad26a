#!/bin/sh
# Before the files go: deb calls it with "remove" or "upgrade", rpm with how many
# packages are left. Without the program nobody could lift what stands in the
# kernel, so it is lifted now.
set -e
case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
netnice down >/dev/null 2>&1 || true
if [ -d /run/systemd/system ]; then
	systemctl disable --now netnice.service netnice.socket >/dev/null 2>&1 || true
fi
