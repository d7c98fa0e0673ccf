# Completion of plx for bash: source <(plx completion bash)
_plx() {
	local line=${COMP_LINE:0:COMP_POINT} words word candidate
	read -ra words <<<"$line"
	[[ $line == *[[:space:]] ]] && words+=("")
	word=${words[${#words[@]} - 1]}
	# Bash takes a word with : or = for several, and completes the last of them.
	local before=${word%"${word##*[:=]}"}
	compopt +o default 2>/dev/null
	COMPREPLY=()
	while IFS=$'\t' read -r candidate _; do
		if [[ $candidate == :files ]]; then
			compopt -o default 2>/dev/null
		else
			COMPREPLY+=("${candidate#"$before"}")
		fi
	done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
}
complete -o default -F _plx plx
