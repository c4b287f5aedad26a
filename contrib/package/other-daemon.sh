# Part of deb/postinst and rpm/post.sh, after the service's daemon was replaced on a machine with systemd.
running=$(netnice status --json 2>/dev/null | sed -n 's/^  "pid": \([0-9]*\),$/\1/p')
if [ -n "$running" ] && [ "$running" != "$(systemctl --system show -p MainPID --value netnice.service)" ]; then
	echo "netnice: the daemon that runs (pid $running) is not the service's, and was not replaced; as root, netnice up --replace replaces it, and limits hold meanwhile"
fi
