# Completion of plx for fish: plx completion fish >~/.config/fish/completions/plx.fish
function __plx_complete
	set -l words (commandline -opc)
	set -a words (commandline -ct | string collect --allow-empty)
	$words[1] __complete $words[2..-1] 2>/dev/null
end
complete -c plx -f -a '(__plx_complete | string match -v :files)'
complete -c plx -n '__plx_complete | string match -q :files' -F
