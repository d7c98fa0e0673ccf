# Completion of plx for fish: mkdir -p ~/.config/fish/completions; plx completion fish >~/.config/fish/completions/plx.fish
function __plx_complete
	set -l words (commandline -opc)
	set -l last (commandline -ct)
	# Files behind --flag= are those for what comes after it.
	set -l before (string match -r -- '^-[^=]*=' "$last")
	set -l value (string replace -r -- '^-[^=]*=' '' "$last")
	set -l plx (string replace -r -- '^~' $HOME $words[1])
	for line in ($plx __complete $words[2..-1] "$last" 2>/dev/null)
		switch $line
			case :files
				__fish_complete_path "$value" | string replace -r -- '^' "$before"
			case :folders
				__fish_complete_directories "$value" | string replace -r -- '^' "$before"
			case '*'
				echo $line
		end
	end
end
complete -c plx -f -a '(__plx_complete)'
