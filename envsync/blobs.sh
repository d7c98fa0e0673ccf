# What Sync runs on a host, before a call of one of these functions and after
# a line that sets $salt to a random word.
LC_ALL=C TZ=UTC0
export LC_ALL TZ
umask 077
blobs=.plx/blobs
[ -d "$blobs" ] || mkdir -p "$blobs" || exit 1

# ~/.plx/verified/BOOT has a line "SUM IDENTITY" for every blob whose content
# was found right since that boot of the host. Hosts with one home have a file
# each: what one has cached tells nothing of what the next one reads. Whatever
# else is in such a file, or in its place, is as good as no file.
boot=
{ read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null
case $boot in
'' | *[!0-9a-f-]*) marks= ;;
*) marks=.plx/verified/$boot ;;
esac
marks_limit=65536

# identity FILE: what does not stay when the content changes: inode, size and
# times. Nothing where it is not to be had, and then nothing is marked.
identity() { stat -c '%i %s %y %z' "$1" 2>/dev/null; }

# recall reads the marks.
recall() {
	marked=
	[ -z "$marks" ] || [ ! -f "$marks" ] || marked=$(head -c "$marks_limit" "$marks" 2>/dev/null)
}

# known SUM IDENTITY: whether it is marked, by what recall has read.
known() {
	[ -n "$2" ] || return 1
	case "
$marked
" in
	*"
$1 $2
"*) return 0 ;;
	esac
	return 1
}

# mark SUM IDENTITY: the newest comes first, so that the limit drops the
# oldest. Of two that write at once one is lost, and its blob hashed again.
mark() {
	[ -n "$marks" ] && [ -n "$2" ] && mkdir -p .plx/verified && [ ! -d "$marks" ] || return 0
	{
		printf '%s %s\n' "$1" "$2"
		head -c "$marks_limit" "$marks" | while read -r sum rest; do
			[ "$sum" = "$1" ] || printf '%s %s\n' "$sum" "$rest"
		done
	} >"$marks.$salt"
	mv -f "$marks.$salt" "$marks" || rm -f "$marks.$salt"
} 2>/dev/null

# digest FILE: prints its SHA-256, or "none" if the host has no program for it.
digest() {
	if command -v sha256sum >/dev/null 2>&1; then sum=$(sha256sum <"$1")
	elif command -v shasum >/dev/null 2>&1; then sum=$(shasum -a 256 <"$1")
	elif command -v openssl >/dev/null 2>&1; then sum=$(openssl dgst -sha256 -r <"$1")
	else sum=none
	fi || return 1
	printf '%s\n' "${sum%% *}"
}

# flush PATH: to the disk, if this can be done for one file; older programs
# flush all file systems, which may take minutes on a busy host.
flush() {
	case $(sync --help 2>&1) in
	*FILE*) sync "$1" ;;
	esac
}

# clear SUM: removes what is no file from a blob's place. A link is none: mv
# would follow it into a folder.
clear() {
	if [ ! -L "$blobs/$1" ]; then
		[ -e "$blobs/$1" ] && [ ! -f "$blobs/$1" ] || return 0
	fi
	rm -rf "$blobs/$1" && return 0
	echo "plx: $HOME/$blobs/$1 is in the way of a file that plx sends: remove it" >&2
	exit 1
}

# has SUM SIZE: whether there is a file of that size.
has() {
	[ -f "$blobs/$1" ] || return 1
	set -- "$1" "$2" $(ls -ln "$blobs/$1" 2>/dev/null)
	permissions=$3
	[ "$7" = "$2" ]
}

# look SUM SIZE: prints "have SUM" for a blob that is there and known to be
# right, "check SUM" for one of the right size. Another size is what a full
# disk or a lost host left behind.
look() {
	clear "$1"
	has "$1" "$2" || return 1
	case $permissions in
	-rwx------*) ;;
	*) chmod 700 "$blobs/$1" ;;
	esac
	# A new time makes a new identity, so this is done once in an hour.
	case "$recent
" in
	*"/$1
"*) ;;
	*) touch -c "$blobs/$1" ;;
	esac
	if known "$1" "$(identity "$blobs/$1")"; then
		printf 'have %s\n' "$1"
	else
		printf 'check %s\n' "$1"
	fi
}

# look_for SUM SIZE TRIES: prints "gzip" if the host has that program, and looks
# for a blob. Of the hosts
# that share a home only one writes; the others may see its files a little
# later, so they look $3 times more, a second apart, and list the folder
# to make the file system look again.
#
# Temporary files of a day ago are of an upload that was cut off. Marks of a month ago are
# of a boot that is over. A file that was used in the last hour is recent.
look_for() {
	! command -v gzip >/dev/null 2>&1 || echo gzip
	recent=$(find "$blobs/" .plx/verified -type f \( -path '*/verified/*' -mtime +30 -exec rm -f {} + \
		-o -path '*/blobs/.*' -mtime +0 -exec rm -f {} + -o -path '*/blobs/*' -mmin -60 -print \) 2>/dev/null)
	recall
	tries=$3
	until look "$1" "$2"; do
		[ "$tries" -gt 0 ] || break
		tries=$((tries - 1))
		sleep 1
		ls "$blobs" >/dev/null
	done
}

# fetch HOST PORT SECONDS TEMPORARY: takes a blob from another host, which gives it to
# whoever tells it what is on standard input. A host without the programs for that says
# "bare". The first connection is for its limit.
fetch() {
	command -v bash >/dev/null 2>&1 && command -v timeout >/dev/null 2>&1 || { echo bare; exit 1; }
	timeout 3 bash -c ': <>"/dev/tcp/$1/$2"' plx "$1" "$2" || exit 1
	timeout "$3" bash -c 'exec 3<>"/dev/tcp/$1/$2" && cat >&3 && exec cat <&3' plx "$1" "$2" >"$blobs/$4"
}

# check SUM: prints the hash of a blob, and marks it if that is right. The
# identity is from before, so that a change in between is noticed.
check() {
	before=$(identity "$blobs/$1")
	found=$(digest "$blobs/$1") || exit 1
	[ "$found" != "$1" ] || mark "$1" "$before"
	printf '%s\n' "$found"
}

# settle SUM SIZE TEMPORARY: gives an upload that was found right its name,
# once it would outlast a power cut. A right blob that is there by now stays:
# it may be running, and on a network file system a program whose file is
# replaced dies.
settle() {
	chmod 700 "$blobs/$3" && flush "$blobs/$3" || exit 1
	clear "$1"
	if has "$1" "$2" && [ "$(digest "$blobs/$1" 2>/dev/null)" = "$1" ]; then
		rm -f "$blobs/$3"
	else
		mv -f "$blobs/$3" "$blobs/$1" || exit 1
	fi
	flush "$blobs" 2>/dev/null # some file systems cannot do it for a folder
	mark "$1" "$(identity "$blobs/$1")"
}
