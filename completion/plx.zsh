#compdef plx
# Completion of plx for zsh: echo 'source <(plx completion zsh)' >>~/.zshrc
(($+functions[compdef])) || { autoload -Uz compinit && compinit; }
_plx() {
	local line files= folders=
	local -a candidates
	for line in "${(@f)$("${(Q)~words[1]}" __complete "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}"; do
		case $line in
		:files) files=yes ;;
		:folders) folders=yes ;;
		?*)
			line=${line//:/\\:}
			candidates+=("${line/$'\t'/:}")
			;;
		esac
	done
	((${#candidates})) && _describe 'plx' candidates
	[[ -n $files$folders && $PREFIX == -*=* ]] && compset -P '*='
	[[ -n $files ]] && _files
	[[ -n $folders ]] && _files -/
}
# In a folder of $fpath this file is the body of _plx, for the first time.
if [[ $funcstack[1] == _plx ]]; then _plx "$@"; else compdef _plx plx; fi
