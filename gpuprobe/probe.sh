# What Probe runs on a host, after a line that sets $mark (a random word),
# $limit (seconds that nvidia-smi may take) and $root (empty; a folder that
# stands for / in tests). POSIX sh, and few other programs; no file is written.
#
# Lines that begin with $mark are the script's own: "begin SECTION [WORD]",
# then the section's raw lines, then, after a program's, "end STATUS"; "done"
# comes last. STATUS is a number or "late". Empty lines mean nothing.

LC_ALL=C
export LC_ALL
unset OMP_NUM_THREADS OMP_THREAD_LIMIT # nproc would obey them
PATH=$PATH:/usr/bin:/bin:/usr/sbin:/sbin
export PATH

say() { printf '\n%s %s\n' "$mark" "$*"; }

# show SECTION [WORD]: a section with standard input as its lines.
show() {
	say begin "$@"
	cat
}

# limited SECONDS PROGRAM...: runs a program in a shell of its own that gives
# up on it in time, also when SIGKILL cannot end it, and prints "end STATUS".
#
# The shell waits for the clock alone, and the program's end kills the clock:
# with SIGKILL, and by a process id that is known before the program starts, so
# that no clock is left over however the two meet.
limited_script='
	mark=$1 limit=$2
	shift 2
	sleep "$limit" >/dev/null 2>&1 </dev/null &
	clock=$!
	(
		tool=
		trap "kill -9 \$tool 2>/dev/null; exit 0" TERM
		"$@" </dev/null 2>&1 &
		tool=$!
		wait "$tool"
		status=$?
		kill -9 "$clock" 2>/dev/null
		exit "$status"
	) &
	run=$!
	if { wait "$clock"; } 2>/dev/null; then # it came to its end
		kill "$run" 2>/dev/null
		status=late
	else
		wait "$run"
		status=$?
	fi
	printf "\n%s end %s\n" "$mark" "$status"
'
limited() { sh -c "$limited_script" plx-probe "$mark" "$@"; }

# owners: passes a section on, and after it prints "uid PID UID" for every
# process named in its lines "GPU, PID, ...", and the password file's lines
# of those users.
owners() {
	pids= count=0
	while IFS= read -r line; do
		printf '%s\n' "$line"
		case $line in "$mark end "*) break ;; esac
		rest=${line#*, } pid=
		[ "$rest" = "$line" ] || pid=${rest%%,*}
		case $pid in '' | *[!0-9]*) continue ;; esac
		count=$((count + 1))
		[ "$count" -gt 256 ] || pids="$pids $pid"
	done
	uids=
	say begin owners
	for pid in $pids; do
		uid=
		while read -r key value rest; do
			[ "$key" = Uid: ] && uid=$value && break
		done 2>/dev/null <"$root/proc/$pid/status"
		[ -n "$uid" ] || continue
		printf 'uid %s %s\n' "$pid" "$uid"
		case " $uids " in *" $uid "*) ;; *) uids="$uids $uid" ;; esac
	done
	[ -n "$uids" ] || return 0
	say begin passwd
	if command -v getent >/dev/null 2>&1; then
		limited 5 getent passwd $uids # a directory server may be down
	else
		cat "$root/etc/passwd" 2>/dev/null
	fi
}

# pass: passes a section on and returns what it says about the tool: 3 late,
# 4 a field that this driver does not know, 5 a GPU in MIG mode, 0 otherwise.
pass() {
	verdict=0
	while IFS= read -r line; do
		printf '%s\n' "$line"
		case $line in
		"$mark end late") return 3 ;;
		"$mark end "*) return "$verdict" ;;
		*'not a valid field'*) verdict=4 ;;
		*', Enabled,'*) verdict=5 ;;
		esac
	done
}

find_tool() {
	found=
	[ -n "$root" ] || found=$(command -v nvidia-smi 2>/dev/null)
	for tool in $found \
		/usr/bin/nvidia-smi /usr/local/nvidia/bin/nvidia-smi /usr/local/cuda/bin/nvidia-smi \
		/opt/bin/nvidia-smi /run/nvidia/driver/usr/bin/nvidia-smi /usr/lib/wsl/lib/nvidia-smi \
		/run/current-system/sw/bin/nvidia-smi; do
		tool=$root$tool
		[ -f "$tool" ] && [ -x "$tool" ] && return 0
	done
	return 1
}

# query SECTION FIELDS. The name comes last in FIELDS: only it may hold commas.
query() {
	say begin "$1"
	limited "$limit" "$tool" --query-gpu="$2" --format=csv,noheader,nounits | pass
}

ask_tool() {
	fields=index,uuid,pci.bus_id,driver_version,memory.total,memory.used,utilization.gpu,compute_mode
	query gpus "$fields,mig.mode.current,name"
	verdict=$?
	if [ "$verdict" = 4 ]; then # a driver before 450
		query gpus-without-mig "$fields,name"
		verdict=$?
	fi
	[ "$verdict" != 3 ] || return 0
	if [ "$verdict" = 5 ]; then
		say begin list
		limited "$limit" "$tool" -L | pass
	fi
	say begin apps
	limited "$limit" "$tool" --query-compute-apps=gpu_uuid,pid,used_gpu_memory,process_name \
		--format=csv,noheader,nounits | owners
}

pci_devices() {
	for device in "$root"/sys/bus/pci/devices/*; do
		vendor= class=
		{
			read -r vendor <"$device/vendor"
			read -r class <"$device/class"
		} 2>/dev/null
		case $vendor,$class in 0x10de,0x03*) printf '%s\n' "${device##*/}" ;; esac
	done
}

# blas prints "FILE PATH" for every library that plx could use.
blas() {
	{ ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | while read -r file rest; do
		case $file in
		libopenblas.so* | libmkl_rt.so* | libblis.so* | libblis-mt.so*) printf '%s %s\n' "$file" "${rest##*=> }" ;;
		esac
	done
	IFS=:
	for folder in $LD_LIBRARY_PATH /usr/lib/* /usr/lib64 /usr/local/lib /opt/OpenBLAS/lib /opt/intel/oneapi/mkl/latest/lib \
		/opt/intel/oneapi/mkl/latest/lib/intel64 /opt/intel/mkl/lib/intel64 ${CONDA_PREFIX:+"$CONDA_PREFIX/lib"}; do
		for path in "$root$folder"/libopenblas.so.* "$root$folder"/libmkl_rt.so* "$root$folder"/libblis.so.* "$root$folder"/libblis-mt.so.*; do
			[ -f "$path" ] && printf '%s %s\n' "${path##*/}" "$path"
		done
	done
	unset IFS
}

printf '%s %s\n' "$(uname -m)" "$(uname -r)" | show machine
{ nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || grep -c '^processor' "$root/proc/cpuinfo"; } | show cpus
grep '^MemTotal' "$root/proc/meminfo" 2>/dev/null | show memory
grep -m 1 '^model name' "$root/proc/cpuinfo" 2>/dev/null | show cpu-model
blas | show blas
pci_devices | show pci
head -n 1 "$root/proc/driver/nvidia/version" 2>/dev/null | show driver
for file in "$root"/proc/driver/nvidia/gpus/*/information; do
	[ -f "$file" ] || continue
	folder=${file%/information}
	show information "${folder##*/}" <"$file"
done
if find_tool; then
	printf '%s\n' "$tool" | show tool
	ask_tool
fi
say 'done'
