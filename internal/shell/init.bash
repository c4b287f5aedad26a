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
	_netnice_bind_enter plain
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
# bash 5.2 corrupts its memory if a key's command runs while the parser is inside a
# quoted word. So only the first line of a command is rewritten: Enter is an ordinary
# Enter from there to the next prompt.
_netnice_bind_enter() {
	local map
	for map in emacs vi-insert vi-command; do
		if [ "$1" = rewriting ]; then
			bind -m "$map" '"\C-m": "\C-x\C-_\C-x\C-j"'
			bind -m "$map" '"\C-j": "\C-x\C-_\C-x\C-j"' # what was typed ahead ends so
		else
			bind -m "$map" '"\C-m": accept-line'
			bind -m "$map" '"\C-j": accept-line'
		fi
	done
}
# bash calls _netnice_prompt before each primary prompt, never before a continuation line.
_netnice_prompt() {
	local status=$?
	_netnice_bind_enter rewriting
	return "$status"
}
# bash calls _netnice_refuse before each command that was typed. An @RATE that is still
# there came on a later line of its command, which would run without a limit: SIGINT
# ends the whole command, as Ctrl-C does.
_netnice_refuse() {
	case $BASH_COMMAND in
	*[[:blank:]]@[0-9]*) ;;
	*) return ;;
	esac
	if [ "$(command netnice shell-line bash "$BASH_COMMAND" 2>/dev/null)" != "$BASH_COMMAND" ]; then
		printf 'netnice: not run: @RATE is read on the first line of a command only; write it there: %s\n' "$BASH_COMMAND" >&2
		kill -INT "$BASHPID"
	fi
}
case $- in
*i*)
	for _netnice_map in emacs vi-insert vi-command; do
		bind -m "$_netnice_map" -x '"\C-x\C-_": _netnice_line'
		bind -m "$_netnice_map" '"\C-x\C-j": accept-line'
	done
	unset -v _netnice_map
	if [ "${BASH_VERSINFO[0]}${BASH_VERSINFO[1]}" -ge 51 ]; then
		# A later PROMPT_COMMAND=... sets element 0 and leaves this one.
		PROMPT_COMMAND=("${PROMPT_COMMAND[@]:-:}" _netnice_prompt)
	else
		PROMPT_COMMAND="${PROMPT_COMMAND:+$PROMPT_COMMAND; }_netnice_prompt"
	fi
	[ -n "$(trap -p DEBUG)" ] || trap _netnice_refuse DEBUG
	;;
esac
