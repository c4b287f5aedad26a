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
# _netnice_line is what Enter calls on the first line of a command.
_netnice_line() {
	local line=$READLINE_LINE
	bind '"\C-x\C-j": accept-line'
	case $line in
	*@*) line=$(command netnice shell-line bash "$line" && printf .) ;;
	*) line=$line. ;;
	esac
	case $?,$line in
	125,*) # said why: the line stays to be mended
		bind '"\C-x\C-j": redraw-current-line'
		return
		;;
	0,"$READLINE_LINE".) ;;
	0,*)
		_netnice_typed=$READLINE_LINE _netnice_ran=${line%.}
		READLINE_LINE=${line%.}
		READLINE_POINT=${#READLINE_LINE}
		;;
	esac
	_netnice_bind_enter plain
}
# bash 5.2 corrupts its memory if a key's command runs while the parser is inside a
# quoted word. So only the first line of a command is rewritten: Enter is an ordinary
# Enter from there to the next prompt.
_netnice_bind_enter() {
	[ "$1" != "${_netnice_enter-}" ] || return 0
	_netnice_enter=$1
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
# _netnice_prompt is called before each primary prompt, never before a continuation line.
_netnice_prompt() {
	local status=$?
	_netnice_bind_enter rewriting
	[ -z "${_netnice_ran-}" ] || _netnice_keep_typed
	_netnice_more=
	if shopt -q promptvars; then
		# A continuation line's prompt notes that there is one, and what is shown before
		# the whole command runs looks at it then: neither costs another command anything.
		case $PS2 in *_netnice_more*) ;; *) PS2+='${_netnice_none[_netnice_more=1]-}' ;; esac
		case ${PS0-} in *_netnice_more*) ;; *) PS0='${_netnice_more:+$(_netnice_whole)}'${PS0-} ;; esac
	fi
	return "$status"
}
# _netnice_last sets number and text of the newest command in the history.
_netnice_last() {
	text=$(HISTTIMEFORMAT='' builtin history 1)
	text=${text#"${text%%[0-9]*}"}
	number=${text%%[!0-9]*}
	text=${text#"$number"}
	text=${text#? }
}
# _netnice_keep_typed has the history say what was typed, not what it became.
_netnice_keep_typed() {
	local number text ran=${_netnice_ran%\\}
	_netnice_last
	if [ "${text#"$ran"}" != "$text" ]; then
		builtin history -d "$number"
		builtin history -s -- "${_netnice_typed%\\}${text#"$ran"}"
	fi
	_netnice_ran=
}
# _netnice_whole looks at a command of several lines before it runs, in a subshell. What
# is to be limited there would run without a limit: SIGINT ends the command, as Ctrl-C does.
_netnice_whole() {
	local number text line
	_netnice_last
	case $text in *[[:blank:]]@*) ;; *) return ;; esac
	line=$(command netnice shell-line bash "$text")
	case $?,$line in
	0,"$text") return ;;
	0,*) printf 'netnice: not run: an @RATE of a command typed in several lines\n  bring the command back with Up, in one piece, and press Enter\n' >&2 ;;
	125,*) ;; # said why
	*) return ;;
	esac
	kill -INT "$$"
}
case $- in
*i*)
	for _netnice_map in emacs vi-insert vi-command; do
		bind -m "$_netnice_map" -x '"\C-x\C-_": _netnice_line'
		bind -m "$_netnice_map" '"\C-x\C-j": accept-line'
	done
	unset -v _netnice_map
	# First, so that the history is right when others write it to a file; and last, because
	# a later PROMPT_COMMAND=... sets element 0 only.
	if [ "${BASH_VERSINFO[0]}${BASH_VERSINFO[1]}" -ge 51 ]; then
		PROMPT_COMMAND=(_netnice_prompt "${PROMPT_COMMAND[@]}" _netnice_prompt)
	else
		PROMPT_COMMAND="_netnice_prompt${PROMPT_COMMAND:+; $PROMPT_COMMAND}"
	fi
	;;
esac
