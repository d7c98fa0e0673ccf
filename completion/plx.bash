# Completion of plx for bash: echo 'source <(plx completion bash)' >>~/.bashrc
_plx() {
	# Bash takes a word with : or = for several. Those between which there is no space are one.
	local rest=${COMP_LINE:0:COMP_POINT} words=() last i part candidate
	for ((i = 0; i <= COMP_CWORD; i++)); do
		part=${COMP_WORDS[i]}
		((i == COMP_CWORD)) && part=${rest#"${rest%%[![:space:]]*}"} # up to the cursor
		if ((i == 0)) || [[ $rest == [[:space:]]* ]]; then
			words+=("$part")
			rest=${rest#"${rest%%[![:space:]]*}"}
		else
			words[-1]+=$part
		fi
		rest=${rest#"$part"}
	done
	words=("${words[@]//[\"\'\\]/}")
	last=${words[-1]}
	# Bash replaces only the last part.
	case $part in *[!=:]*) ;; *) part= ;; esac
	local before=${last%"${part//[\"\'\\]/}"}
	compopt +o default 2>/dev/null
	COMPREPLY=()
	while IFS=$'\t' read -r candidate _; do
		case $candidate in
		:files) compopt -o default 2>/dev/null ;;
		:folders)
			compopt -o filenames 2>/dev/null
			while read -r candidate; do COMPREPLY+=("$candidate"); done < <(compgen -d -- "$part")
			;;
		*) COMPREPLY+=("${candidate#"$before"}") ;;
		esac
	done < <("${words[0]/#\~/$HOME}" __complete "${words[@]:1}" 2>/dev/null)
}
complete -o default -F _plx plx
