# netnice shell-init bash: a command whose last word is @RATE runs under that limit.
# In ~/.bashrc: eval "$(netnice shell-init bash)"
netnice_at() {
	local rate=$NETNICE_AT
	unset -v NETNICE_AT
	if [ "$(type -t -- "$1")" = file ]; then
		command netnice run --total "$rate" -- "$@"
	else # a function or a builtin: the shell that runs it is limited
		(command netnice "$BASHPID" "$rate" >/dev/null && "$@")
	fi
}
alias netnice_at='netnice_at ' # so that the command may be an alias, too
_netnice_line() {
	case $READLINE_LINE in
	*@*)
		local line
		if line=$(command netnice shell-line bash "$READLINE_LINE" && printf .); then
			READLINE_LINE=${line%.}
			READLINE_POINT=${#READLINE_LINE}
		fi
		;;
	esac
}
case $- in
*i*)
	for _netnice_map in emacs vi-insert vi-command; do
		bind -m "$_netnice_map" -x '"\C-x\C-_": _netnice_line'
		bind -m "$_netnice_map" '"\C-x\C-j": accept-line'
		bind -m "$_netnice_map" '"\C-m": "\C-x\C-_\C-x\C-j"'
		bind -m "$_netnice_map" '"\C-j": "\C-x\C-_\C-x\C-j"' # what was typed ahead ends so
	done
	unset -v _netnice_map
	;;
esac
