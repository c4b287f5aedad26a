# What both boots of the guest need. Each check prints a line that begins with "ok"
# or "FAIL"; the rest is for people.
exec >/dev/ttyS1 2>&1
export HOME=/root
cd /root || exit 1
say() { echo "== $(cut -d' ' -f1 /proc/uptime) s: $*"; }
check() { # check NAME COMMAND...
	local name=$1 out
	shift
	if out=$("$@" 2>&1); then echo "ok $name"; else echo "FAIL $name: $* (exit $?): $out"; fi
}
is() { [ "$(eval "$1" 2>&1)" = "$2" ] || { eval "$1"; return 1; }; }
within() { # within SECONDS COMMAND...
	local until=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $until ] || return 1
		sleep 0.5
	done
}
