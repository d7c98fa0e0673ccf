#compdef plx
# Completion of plx for zsh: plx completion zsh >"${fpath[1]}/_plx"
_plx() {
	local line files=
	local -a candidates
	for line in "${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
		if [[ $line == :files ]]; then
			files=yes
		elif [[ -n $line ]]; then
			line=${line//:/\\:}
			candidates+=("${line/$'\t'/:}")
		fi
	done
	((${#candidates})) && _describe 'plx' candidates
	[[ -n $files ]] && _files
}
compdef _plx plx
