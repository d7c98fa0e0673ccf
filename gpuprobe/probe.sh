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
# of those users. It returns 3 if the tool was late, 0 otherwise.
owners() {
	pids= count=0 verdict=0
	while IFS= read -r line; do
		printf '%s\n' "$line"
		case $line in
		"$mark end late") verdict=3 && break ;;
		"$mark end "*) break ;;
		esac
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
	[ -n "$uids" ] || return "$verdict"
	say begin passwd
	if command -v getent >/dev/null 2>&1; then
		limited 5 getent passwd $uids # a directory server may be down
	else
		cat "$root/etc/passwd" 2>/dev/null
	fi
	return "$verdict"
}

# pass: passes a section on and returns what it says about the tool: 3 late,
# 4 a field that this driver does not know, 6 if that is compute_cap, 5 a GPU in
# MIG mode, 0 otherwise.
pass() {
	verdict=0
	while IFS= read -r line; do
		printf '%s\n' "$line"
		case $line in
		"$mark end late") return 3 ;;
		"$mark end "*) return "$verdict" ;;
		*'"compute_cap" is not a valid field'*) verdict=6 ;;
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
	query gpus "$fields,mig.mode.current,compute_cap,name"
	verdict=$?
	if [ "$verdict" = 6 ]; then # a driver before 510
		query gpus-without-cap "$fields,mig.mode.current,name"
		verdict=$?
	fi
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
	[ $? != 3 ] || return 0
	say begin version # the shortest answer whose head has the driver's CUDA version
	limited "$limit" "$tool" -q -d COMPUTE
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
	# A shell reads from a pipe byte by byte: grep leaves it a few lines of thousands.
	{ ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | grep -E '^[[:space:]]*lib(openblas|mkl_rt|blis|blis-mt)\.so' |
		while read -r file rest; do
			printf '%s %s\n' "$file" "${rest##*=> }"
		done
	IFS=:
	for folder in $LD_LIBRARY_PATH /usr/lib/*-linux-* /usr/lib64 /usr/local/lib /opt/OpenBLAS/lib /opt/intel/oneapi/mkl/latest/lib \
		/opt/intel/oneapi/mkl/latest/lib/intel64 /opt/intel/mkl/lib/intel64 ${CONDA_PREFIX:+"$CONDA_PREFIX/lib"}; do
		for path in "$root$folder"/lib[omb]*.so.*; do
			case ${path##*/} in
			libopenblas.so.* | libmkl_rt.so.* | libblis.so.* | libblis-mt.so.*)
				[ -f "$path" ] && printf '%s %s\n' "${path##*/}" "$path"
				;;
			esac
		done
	done
	unset IFS
}

# line PREFIX FILE: the file's first line that begins so, before its first empty line.
line() {
	while IFS= read -r text && [ -n "$text" ]; do
		case $text in "$1"*) printf '%s\n' "$text" && return ;; esac
	done 2>/dev/null <"$root$2"
}

# What the shell reads itself starts no program: on many hosts at once, or on a busy one,
# programs are most of what a probe costs.
say begin machine
set -- $(uname -rm) # always in this order
printf '%s %s\n' "$2" "$1"
say begin cpus
nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || grep -c '^processor' "$root/proc/cpuinfo"
say begin memory
line MemTotal /proc/meminfo
say begin cpu-model
line 'model name' /proc/cpuinfo
say begin visible
printf '%s\n' "$CUDA_VISIBLE_DEVICES"
say begin blas
blas
say begin pci
pci_devices
say begin driver
line '' /proc/driver/nvidia/version
for file in "$root"/proc/driver/nvidia/gpus/*/information; do
	[ -f "$file" ] || continue
	folder=${file%/information}
	say begin information "${folder##*/}"
	cat "$file"
done
if find_tool; then
	say begin tool
	printf '%s\n' "$tool"
	ask_tool
fi
say 'done'
