# What plx doctor runs on a host, after a line that sets $token to a random word. It prints
# lines "key=value". The line "step" names what is looked at next, so that plx can tell what
# hangs.
LC_ALL=C
export LC_ALL
PATH=$PATH:/usr/bin:/bin:/usr/sbin:/sbin
export PATH
umask 077

say() { printf '%s=%s\n' "$1" "$2"; }

# folder KEY PATH: what plx needs to know of a folder.
folder() {
	say step "$2"
	say "$1.path" "$2"
	if [ ! -d "$2" ]; then
		say "$1.missing" yes
		return
	fi
	say "$1.disk" "$(df -Pk "$2" 2>/dev/null | tail -n 1)"
	say "$1.inodes" "$(df -Pi "$2" 2>/dev/null | tail -n 1)"
	file=$2/.plx-doctor.$token
	trap 'rm -f "$file"' EXIT
	# cat says in words why it cannot write.
	said=$({ printf '#!/bin/sh\nexit 42\n' | cat >"$file"; } 2>&1)
	if [ ! -s "$file" ]; then
		say "$1.unwritable" "$(printf %s "$said" | tr '\n' ' ')"
	else
		chmod 700 "$file"
		"$file" >/dev/null 2>&1
		[ $? = 42 ] || say "$1.noexec" yes
	fi
	rm -f "$file"
	trap - EXIT
}

say begun yes
say now "$(date +%s.%N)"
say os "$(uname -s)"
say arch "$(uname -m)"
say kernel "$(uname -r)"
say hostname "$(uname -n)"
say uid "$(id -u)"
say user "$(id -un 2>/dev/null || id -u)"
while read -r line; do
	case $line in
	'Max open files'*) say files "${line#Max open files}" ;;
	'Max processes'*) say processes "${line#Max processes}" ;;
	esac
done </proc/self/limits 2>/dev/null
home=$HOME
if [ -d "$HOME/.plx" ]; then home=$HOME/.plx; fi
folder home "$home"
folder tmp /tmp
say done yes
