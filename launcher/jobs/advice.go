package jobs

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/plx-run/plx/launcher/protocol"
)

// advices lists texts that may occur in the last output lines of a failed
// task. If plx finds such a text, it prints the hint beside it.
var advices = []struct{ shows, hint string }{
	{"invalid device ordinal", "--visible host shows a worker all GPUs of its host, to choose by LOCAL_RANK; with --visible own its GPU is cuda:0"},
	{"required: --local_rank", localRankHint}, // Python's argparse names a missing option this way
	{"required: --local-rank", localRankHint},
	{"insufficient shared memory (shm)", containerShmHint}, // printed by PyTorch's data loaders
	{"killed by signal: Bus error", containerShmHint},
	{"ModuleNotFoundError: No module named ", "a host's Python may lack it: --venv DIR sends an environment of this machine with its modules, --check-import MODULE looks on all hosts before the start"},
}

const containerShmHint = "a container has a /dev/shm of its own, often of 64 MiB: --shm-size=8g or --ipc=host; fewer workers of data loaders (num_workers) need less"

const localRankHint = `plx sets the variable LOCAL_RANK. For a flag: bash -c 'exec python3 train.py --local_rank="$LOCAL_RANK"'`

const memoryHint = "plx exec --host %s -- free -h shows the memory of the host, and sudo dmesg there shows which process the kernel killed; fewer workers on the host (--workers-per-host N) or smaller batches need less"

const shmHint = "plx exec --host %s -- sh -c 'df -h /dev/shm; ls -l /dev/shm' shows its room and who uses it. As root: mount -o remount,size=8G,mode=1777 /dev/shm; for a container --shm-size=8g or --ipc=host; fewer workers of data loaders (num_workers) need less"

const busHint = "memory that was mapped from a file was not there: the file was cut off, or its file system is full (plx exec --host %s -- df -h). A container has a /dev/shm of its own: --shm-size=8g or --ipc=host"

const killedHint = "a user, a batch system or the limit of a container killed it: the kernel of the host counted no kill for lack of memory. plx exec --host %s -- sudo dmesg shows its last messages"

const suspendedHint = "plx launch --detach leaves the job to its hosts, whatever this machine does: plx attach follows it; --lease TIME lets them wait longer for plx"

// advice returns a hint on how to repair the failure in the verdict v, or ""
// if plx knows none. tail has the last output lines of the task that failed
// first.
func advice(v protocol.Verdict, tail []string) string {
	if v.Suspended > 0 {
		return suspendedHint
	}
	if v.First != nil && (v.First.OOMKills > 0 || v.First.OOM != "") {
		return fmt.Sprintf(memoryHint, v.Host)
	}
	if v.First != nil && v.First.Signal == int(syscall.SIGKILL) && !v.First.StopRequested && v.First.Cause == "" {
		return fmt.Sprintf(killedHint, v.Host)
	}
	if v.First != nil && v.First.Shm != "" {
		return fmt.Sprintf(shmHint, v.Host)
	}
	if v.First != nil && v.First.Code == 128+int(syscall.SIGBUS) && !v.First.StopRequested {
		return fmt.Sprintf(busHint, v.Host)
	}
	if strings.HasSuffix(v.Reason, "; python3 is there") {
		return "many hosts have no python: name python3"
	}
	for _, line := range tail {
		for _, a := range advices {
			if strings.Contains(line, a.shows) {
				return a.hint
			}
		}
	}
	return ""
}
