# What Probe runs on a host, after a line that sets $mark (a random word),
# $limit (seconds that one call of a tool may take) and $root (empty; a folder that
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
# process named in it, and the password file's lines of those users. A process is
# named by a line "GPU, PID, ...", or in JSON by "PID1234" or "pid": 1234.
# It returns 3 if the tool was late, 0 otherwise.
owners() {
	pids= count=0 verdict=0
	while IFS= read -r line; do
		printf '%s\n' "$line"
		case $line in
		"$mark end late") verdict=3 && break ;;
		"$mark end "*) break ;;
		esac
		rest=$line
		while [ "$count" -lt 256 ]; do
			case $rest in
			*'"PID'[0-9]*) rest=${rest#*'"PID'} ;;
			*'"pid": '[0-9]*) rest=${rest#*'"pid": '} ;;
			*'"pid":'[0-9]*) rest=${rest#*'"pid":'} ;;
			'GPU-'*', '* | 'MIG-'*', '*) rest=${rest#*, } ;;
			*) break ;;
			esac
			pid=${rest%%[!0-9]*}
			[ -n "$pid" ] || continue
			count=$((count + 1)) pids="$pids $pid"
		done
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
# MIG mode, 7 that it failed otherwise, 0 that it did not.
pass() {
	verdict=0
	while IFS= read -r line; do
		printf '%s\n' "$line"
		case $line in
		"$mark end late") return 3 ;;
		"$mark end 0") return "$verdict" ;;
		"$mark end "*)
			[ "$verdict" != 0 ] || verdict=7
			return "$verdict"
			;;
		*'"compute_cap" is not a valid field'*) verdict=6 ;;
		*'not a valid field'*) verdict=4 ;;
		*', Enabled,'*) verdict=5 ;;
		esac
	done
}

# find_tool NAME FOLDER...: sets tool, or returns 1.
find_tool() {
	name=$1 tool=
	shift
	[ -n "$root" ] || tool=$(command -v "$name" 2>/dev/null)
	[ -f "$tool" ] && [ -x "$tool" ] && return 0
	for folder in "$@"; do
		tool=$root$folder/$name
		[ -f "$tool" ] && [ -x "$tool" ] && return 0
	done
	return 1
}

find_nvidia() {
	find_tool nvidia-smi /usr/bin /usr/local/nvidia/bin /usr/local/cuda/bin \
		/opt/bin /run/nvidia/driver/usr/bin /usr/lib/wsl/lib /run/current-system/sw/bin
}

find_amd() { find_tool "$1" /usr/bin /usr/local/bin /opt/rocm/bin /opt/rocm-[0-9]*/bin /run/current-system/sw/bin; }

# query SECTION FIELDS. The name comes last in FIELDS: only it may hold commas.
query() {
	say begin "$1"
	limited "$limit" "$tool" --query-gpu="$2" --format=csv,noheader,nounits | pass
}

# ask_nvidia sets answered if its tool can list GPUs.
ask_nvidia() {
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
	case $verdict in
	0 | 5) answered=yes ;;
	3) return 0 ;;
	esac
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

# ask_amd asks AMD's newer tool, and the older one if there is none or it fails.
ask_amd() {
	if find_amd amd-smi; then
		say begin amd-list
		if limited "$limit" "$tool" list --json | pass; then
			say begin amd-static
			limited "$limit" "$tool" static --json | pass
			[ $? != 3 ] || return 0
			say begin amd-metric
			limited "$limit" "$tool" metric --mem-usage --usage --json | pass
			[ $? != 3 ] || return 0
			say begin amd-apps
			limited "$limit" "$tool" process --json | owners
			return 0
		fi
	fi
	find_amd rocm-smi || return 0
	say begin rocm
	limited "$limit" "$tool" --showid --showproductname --showuniqueid --showmeminfo vram \
		--showuse --showbus --showpids --json | owners
	say begin kfd-memory # "PID GPU BYTES": the tool does not tell which GPUs a process uses
	for file in "$root"/sys/class/kfd/kfd/proc/*/vram_*; do
		bytes=
		read -r bytes 2>/dev/null <"$file"
		folder=${file%/*}
		[ -z "$bytes" ] || printf '%s %s %s\n' "${folder##*/}" "${file##*/vram_}" "$bytes"
	done 2>/dev/null
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
say begin rocr-visible
printf '%s\n' "$ROCR_VISIBLE_DEVICES"
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
answered=
if find_nvidia; then
	say begin tool
	printf '%s\n' "$tool"
	ask_nvidia
fi
if [ -e "$root/dev/kfd" ]; then
	say begin kfd
	printf '/dev/kfd\n'
	say begin amdgpu
	line '' /sys/module/amdgpu/version
fi
if [ -z "$answered" ]; then
	ask_amd
elif find_amd amd-smi || find_amd rocm-smi; then
	say begin amd-beside
	printf '%s\n' "$tool"
fi
say 'done'
