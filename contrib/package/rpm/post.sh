#!/bin/sh
# After the files are there. Its argument is how many packages there are then: 1 at the first installation. A
# daemon that runs is replaced by the new one; its limits are in the kernel and hold meanwhile.
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers netnice.conf || :
fi
getent group netnice >/dev/null || groupadd --system netnice || :
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || :
	if [ "$1" -eq 1 ]; then
		# Whether a service starts with the machine is the distribution's to say.
		systemctl preset netnice.service netnice.socket >/dev/null 2>&1 || :
	fi
	systemctl try-restart netnice.service || :
	# script.sh puts other-daemon.sh here.
elif netnice status >/dev/null 2>&1; then
	netnice up --replace || :
fi
if [ "$1" -eq 1 ]; then
	echo "netnice: systemctl enable --now netnice starts the daemon, now and with the machine"
fi
