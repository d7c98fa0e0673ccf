# What Inspect runs on a host, after a line that sets $fsid to a random name.
LC_ALL=C
export LC_ALL
umask 077
set -e

refuse() {
	printf 'plx: %s\n' "$*" >&2
	exit 1
}

cd "$HOME"
for folder in .plx .plx/blobs; do
	# Another launch may make it at any moment: what is in the way is looked for only
	# once making it has failed.
	if [ -d "$folder" ] || mkdir -p "$folder" 2>/dev/null || [ -d "$folder" ]; then
		continue
	elif [ -e "$folder" ]; then
		refuse "$HOME/$folder is not a folder: remove or rename it, then plx makes its own"
	elif [ -L "$folder" ]; then
		refuse "$HOME/$folder is a link to a folder that is not there: make that folder, or remove the link"
	fi
	mkdir -p "$folder" # says why it cannot
done
[ -O .plx ] || refuse "$HOME/.plx is not owned by this user: rename it, then plx makes its own"
chmod 700 .plx .plx/blobs

# The first of several hosts, and of several runs, gives the file system its
# name: a link is made or not made, never half, and the name that counts is
# read back. Where links are not to be had, mv -n comes near.
#
# The file is written anew each time also to find out whether the home can be
# written at all. If it cannot, cat says what is wrong in words.
mine=.plx/.fsid.$fsid
trap 'rm -f "$mine"' EXIT
{ printf '%s\n' "$fsid" >"$mine"; } 2>/dev/null || cat >"$mine" <<EOF
$fsid
EOF
if [ ! -s .plx/fsid ]; then
	[ ! -e .plx/fsid ] || rm -f .plx/fsid # emptied by a full disk
	ln "$mine" .plx/fsid 2>/dev/null || [ -e .plx/fsid ] || mv -n "$mine" .plx/fsid
fi
read -r fsid <.plx/fsid

# What the shell can tell itself starts no program.
boot=
{ read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null || true
uname=$(uname -snm) # always in this order
name=${uname#* }
ids=$(id 2>/dev/null) || ids=
uid=${ids#uid=} user=${ids#*\(}
case $ids in
uid=*\(*) uid=${uid%%\(*} user=${user%%\)*} ;;
*) uid=$(id -u) && user=$uid ;; # its user has no name
esac
printf '%s\n' "os=${uname%% *}" "arch=${uname##* }" "home=$HOME" "user=$user" "uid=$uid" "connection=${SSH_CONNECTION-}" \
	"hostname=${name%% *}" "boot=$boot" "fsid=$fsid"
