# The script that gpuprobe.Probe runs on a host, for a POSIX shell. The Go code puts a line
# before it that sets $mark (a random word), $limit (the time limit for one call of a tool,
# in seconds) and $root (empty; in tests a folder that replaces /). The script writes no file.
#
# The script marks sections of its output by lines that begin with $mark. A section begins with
# "begin SECTION [WORD]", followed by raw lines. If a program printed them, "end STATUS" follows.
# STATUS is the exit status, or "late" after a timeout. "done" is the last line of the output.
# Empty lines have no meaning.

LC_ALL=C
export LC_ALL
unset OMP_NUM_THREADS OMP_THREAD_LIMIT # these variables would change what nproc prints
PATH=$PATH:/usr/bin:/bin:/usr/sbin:/sbin
export PATH

say() { printf '\n%s %s\n' "$mark" "$*"; }

# limited SECONDS PROGRAM...: runs a program with a time limit and prints "end STATUS". It
# returns in time even if the program hangs and SIGKILL cannot end it.
#
# A separate shell runs a clock (sleep) and the program, and waits only for the clock. When the
# program ends, its subshell kills the clock with SIGKILL. The clock's process id is known before
# the program starts, so the clock never stays behind, whichever of the two ends first.
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
	if { wait "$clock"; } 2>/dev/null; then # the time limit has passed
		kill "$run" 2>/dev/null
		status=late
	else
		wait "$run"
		status=$?
	fi
	printf "\n%s end %s\n" "$mark" "$status"
'
limited() { sh -c "$limited_script" plx-probe "$mark" "$@"; }

# owners: copies a section from stdin to stdout. Then it prints "uid PID UID" for every process
# that the section names, and the lines of the password file for those users. The section names
# a process in a line "GPU, PID, ...", or in JSON by "PID1234" or "pid": 1234. The exit status
# is 3 if the tool timed out, otherwise 0.
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
		limited 5 getent passwd $uids # with a limit, because a directory server may be down
	else
		cat "$root/etc/passwd" 2>/dev/null
	fi
	return "$verdict"
}

# pass: copies a section from stdin to stdout. Its exit status describes the tool's result:
# 3 if the tool timed out, 6 if the driver does not know the field compute_cap, 4 if it does not
# know another field, 5 if a GPU is in MIG mode, 7 if the tool failed otherwise, 0 if it worked.
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

# find_tool NAME FOLDER...: sets $tool to the path of the program NAME, found on PATH or in a
# FOLDER. The exit status is 1 if there is no such program.
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

# query SECTION FIELDS: runs nvidia-smi's GPU query. The last of FIELDS must be the name, because
# only a name may contain commas.
query() {
	say begin "$1"
	limited "$limit" "$tool" --query-gpu="$2" --format=csv,noheader,nounits | pass
}

# ask_nvidia: queries the NVIDIA GPUs. It sets $answered if nvidia-smi can list them.
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
	say begin version # the shortest output of nvidia-smi -q that has the driver's CUDA version
	limited "$limit" "$tool" -q -d COMPUTE
}

# ask_amd: queries the AMD GPUs with amd-smi, or with the older rocm-smi if amd-smi is missing or
# fails.
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
	say begin kfd-memory # lines "PID GPU BYTES", because rocm-smi does not report which GPUs a process uses
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

# blas: prints "FILE PATH" for every BLAS library that plx could use.
blas() {
	# The shell reads a pipe byte by byte, which is slow, so grep first selects a few of the
	# thousands of lines.
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

# line PREFIX FILE: prints the first line of FILE that begins with PREFIX, up to the first empty
# line.
line() {
	while IFS= read -r text && [ -n "$text" ]; do
		case $text in "$1"*) printf '%s\n' "$text" && return ;; esac
	done 2>/dev/null <"$root$2"
}

# The shell reads files itself where it can. Starting programs takes most of the time of a probe,
# on a busy host or if many hosts are probed at once.
say begin machine
set -- $(uname -rm) # prints the kernel release and then the architecture
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
