# Runs plx on a host, and receives the plx binary first if the host does not have it.
# The launcher puts lines before this script that set these variables:
#
#	say     a random word that begins every line that this script prints
#	fsid    a random name for the file system of the home directory
#	sum     the SHA-256 of the plx binary for the expected platform; empty: unknown
#	strict  "yes": check the SHA-256 of an existing binary before running it
#	place   "no": run an existing binary or fail; receive nothing
#	act     the command line arguments of plx
mask=$(umask) locale=${LC_ALL-} localised=${LC_ALL+yes} # those of the login
LC_ALL=C
export LC_ALL
umask 077
mine='' new=.plx/blobs/.$say # what comes has this name

trap 'rm -f "$mine" "$new" "$new.gz" 2>/dev/null; exit 1' HUP PIPE TERM
tell() { printf '%s %s\n' "$say" "$*"; }

# refuse TEXT: reports why plx cannot run on this host, and exits.
refuse() {
	rm -f "$mine" "$new" "$new.gz" 2>/dev/null
	# Use shell builtins only: the process limit may not allow another process.
	printf '%s processes ' "$say"
	ulimit -u 2>/dev/null || ulimit -p 2>/dev/null || echo
	set -f # what follows is split into words, and so loses its line feeds
	tell error $*
	exit 1
}

# become: reports the resource limits of this shell, and replaces it with plx.
become() {
	[ -x "$f" ] || chmod 700 "$f" 2>/dev/null
	if ! [ -x "$f" ]; then
		tell noexec "$(df -P "$f" 2>/dev/null | sed -n '2s/.*% //p')"
		exit 1
	fi
	tell runs "$(ulimit -v) $(ulimit -d) $(ulimit -u 2>/dev/null || ulimit -p) $(ulimit -n)"
	umask "$mask"
	if [ "$localised" ]; then LC_ALL=$locale; else unset LC_ALL; fi
	exec "$HOME/$f" $act
}

# digest FILE: prints the SHA-256 of FILE, or "none" if the host has no program to compute it.
digest() {
	if command -v sha256sum >/dev/null 2>&1; then found=$(sha256sum <"$1")
	elif command -v shasum >/dev/null 2>&1; then found=$(shasum -a 256 <"$1")
	elif command -v openssl >/dev/null 2>&1; then found=$(openssl dgst -sha256 -r <"$1")
	else found=none
	fi || return 1
	printf '%s\n' "${found%% *}"
}

# right: succeeds if the plx binary exists and its SHA-256 is $sum. A symbolic link does not
# count: mv would follow a link to a directory.
right() { [ -f "$f" ] && ! [ -L "$f" ] && [ "$(digest "$f" 2>/dev/null)" = "$sum" ]; }

# flush PATH: writes PATH to the disk, if the sync program can do that for a single file. An
# older sync flushes all file systems, which may take minutes on a busy host.
flush() {
	case $(sync --help 2>&1) in
	*FILE*) sync "$1" 2>/dev/null ;; # some file systems cannot do it for a folder
	esac
}

# settle: flushes the received binary to the disk, renames it to its final name, and runs it. If a
# correct binary exists by now, it is kept: it may be running, and on a network file system a
# program crashes if its file is replaced.
settle() {
	said=$(chmod 700 "$new" 2>&1) || refuse "$said"
	flush "$new"
	if right; then
		rm -f "$new"
	else
		if [ -L "$f" ] || [ -e "$f" ] && ! [ -f "$f" ]; then
			rm -rf "$f" 2>/dev/null || refuse "plx: $HOME/$f is in the way of a file that plx sends: remove it"
		fi
		said=$(mv -f "$new" "$f" 2>&1) || refuse "$said"
	fi
	flush .plx/blobs
	become
}

# came: installs and runs the received binary if its SHA-256 is correct.
came() {
	case $(digest "$new") in
	"$sum") settle ;;
	none) tell unhashed "$(wc -c <"$new")" ;;
	*) tell wrong "$(digest "$new")" ;;
	esac
}

disk() { tell disk "$(df -Pk .plx/blobs 2>/dev/null | tail -n 1)"; }

case $HOME in
/*) cd "$HOME" 2>/dev/null || { tell nohome "$HOME"; exit 1; } ;;
*) tell homeless "$HOME"; exit 1 ;;
esac
f=.plx/blobs/$sum
if [ -n "$sum" ] && [ -f "$f" ]; then
	[ "$strict$place" != '' ] || ! [ -x "$f" ] || become
	[ "$place" != no ] || become
	! right || become
fi
if [ "$place" = no ]; then
	tell missing
	exit 127
fi

# folders: creates the directories that plx needs.
folders() {
	for folder in .plx .plx/blobs; do
		# Another launch may create the directory at any moment, so look for obstacles only
		# after mkdir has failed.
		if [ -d "$folder" ] || mkdir -p "$folder" 2>/dev/null || [ -d "$folder" ]; then
			continue
		elif [ -e "$folder" ]; then
			refuse "plx: $HOME/$folder is not a folder: remove or rename it, then plx makes its own"
		elif [ -L "$folder" ]; then
			refuse "plx: $HOME/$folder is a link to a folder that is not there: make that folder, or remove the link"
		fi
		said=$(mkdir -p "$folder" 2>&1) || refuse "$said"
	done
}

# Create the file for the binary early: while it exists, "plx prune --all" does not remove the
# directories. If prune has just removed them, create them again. The checks below report errors.
folders
{ printf '' >"$new"; } 2>/dev/null || { folders && { printf '' >"$new"; } 2>/dev/null; }
[ -O .plx ] || refuse "plx: $HOME/.plx is not owned by this user: rename it, then plx makes its own"
said=$(chmod 700 .plx .plx/blobs 2>&1) || refuse "$said"

# The first host and run that gets here names the file system. Creating a hard link is atomic, so
# only one name wins, and it is read back below. If the file system has no hard links, mv -n is
# almost as good.
#
# The file is written in every run, which also tests that the home directory is writable. If it
# is not, cat prints the reason.
mine=.plx/.fsid.$fsid
{ printf '%s\n' "$fsid" >"$mine"; } 2>/dev/null || refuse "$({ echo "$fsid" | cat >"$mine"; } 2>&1)"
if [ ! -s .plx/fsid ]; then
	[ ! -e .plx/fsid ] || rm -f .plx/fsid # emptied by a full disk
	ln "$mine" .plx/fsid 2>/dev/null || [ -e .plx/fsid ] || mv -n "$mine" .plx/fsid
fi
rm -f "$mine"
read -r fsid <.plx/fsid

tools=
for tool in gzip bash timeout; do
	! command -v "$tool" >/dev/null 2>&1 || tools="$tools $tool"
done
tell lacks "$(uname -s) $(uname -m) $fsid $HOME"
tell tools $tools

while read -r order a b c d; do
	case $order in
	is) # SUM
		sum=$a f=.plx/blobs/$a
		;;
	look) # TRIES: of the hosts that share a home only one writes; the others may see its
		# files a little later, and list the folder to make the file system look again
		while ! right; do
			a=$((a - 1))
			[ "$a" -ge 0 ] || break
			sleep 1
			ls .plx/blobs >/dev/null
		done
		! right || { rm -f "$new" && become; }
		tell absent
		;;
	take) # BYTES PROGRAM: that many bytes follow; gzip unpacks them
		rm -f "$new.gz" # a part of it may have come by another way
		said=$({ head -c "$a" | if [ "$b" = gzip ]; then gzip -dc; else cat; fi >"$new"; } 2>&1) || { disk; refuse "$said"; }
		came
		;;
	unpack) # what was sent by another way. The home may have no room for both files, but for one.
		gzip -dc <"$new.gz" >"$new" 2>/dev/null || { rm -f "$new" "$new.gz"; tell missed; continue; }
		rm -f "$new.gz"
		came
		;;
	peer) # HOST PORT SECONDS TOKEN: another host gives plx to whoever tells the token. The
		# first connection is for its limit. bash reads .bashrc where its parent looks like sshd's.
		said=$({ timeout 3 bash --norc -c ': <>"/dev/tcp/$1/$2"' plx "$a" "$b" &&
			printf %s "$d" | timeout "$c" bash --norc -c 'exec 3<>"/dev/tcp/$1/$2" && cat >&3 && exec cat <&3' plx "$a" "$b" >"$new"; } 2>&1) ||
			{ set -f; tell missed $said; set +f; continue; }
		came
		;;
	back) head -c "$a" "$new" ;;
	trust) settle ;;
	esac
done
rm -f "$new" "$new.gz"
