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
	if [[ $BUFFER == *@* ]]; then
		local line
		line=$(command netnice shell-line zsh "$BUFFER" && printf .) && BUFFER=${line%.}
	fi
	zle .accept-line
}
if [[ -o interactive ]]; then
	zle -N accept-line _netnice_accept_line
fi
