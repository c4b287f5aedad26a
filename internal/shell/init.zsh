# netnice shell-init zsh: a command whose last word is @RATE runs under that limit.
# In ~/.zshrc: eval "$(netnice shell-init zsh)"
zmodload zsh/system
netnice_at() {
	local rate=$NETNICE_AT
	unset NETNICE_AT
	if [[ $(whence -w -- "$1") == *': command' ]]; then
		command netnice run --total "$rate" -- "$@"
	else # a function or a builtin: the shell that runs it is limited
		(command netnice "$sysparams[pid]" "$rate" >/dev/null && "$@")
	fi
}
alias netnice_at='netnice_at ' # so that the command may be an alias, too
_netnice_accept_line() {
	if [[ -z $PREBUFFER && -n $_netnice_ran && $BUFFER == "$_netnice_ran"* ]]; then
		BUFFER=$_netnice_typed${BUFFER#"$_netnice_ran"} # it came back to be edited
	fi
	local line whole=$PREBUFFER$BUFFER
	if [[ $whole == *@* && $CONTEXT == (start|cont) ]]; then
		line=$(command netnice shell-line zsh "$whole" 2>&1 && printf .)
		case $? in
		0)
			line=${line%.}
			if [[ $line == "$whole" ]]; then
				: # nothing is to be limited
			elif [[ -n $PREBUFFER ]]; then
				# Earlier lines cannot be changed here: the whole command comes back to be edited.
				zle -I
				print -u2 -r -- 'netnice: @RATE on a later line of a command: press Enter again to run the whole'
				zle .push-line-or-edit
				return
			else
				_netnice_typed=$BUFFER _netnice_ran=$line BUFFER=$line
			fi
			;;
		125)
			zle -M -- "$line"
			return
			;;
		esac
	fi
	zle .accept-line
}
# _netnice_add_history has the history say what was typed, not what it became.
_netnice_add_history() {
	local ran=$_netnice_ran
	_netnice_ran=
	[[ -n $ran && $1 == "$ran"* ]] || return 0
	[[ -o hist_ignore_space && $1 == ' '* ]] && return 0
	print -sr -- "$_netnice_typed${${1#"$ran"}%$'\n'}"
	return 1
}
if [[ -o interactive ]]; then
	zle -N accept-line _netnice_accept_line
	autoload -Uz add-zsh-hook
	add-zsh-hook zshaddhistory _netnice_add_history
fi
