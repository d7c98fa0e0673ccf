package jobs

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/plx-run/plx/launcher/protocol"
)

// advices are what a program's last lines show that a user may not know of plx.
var advices = []struct{ shows, hint string }{
	{"invalid device ordinal", "--visible host shows a worker all GPUs of its host, to choose by LOCAL_RANK; with --visible own its GPU is cuda:0"},
	{"required: --local_rank", localRankHint}, // as argparse names a flag that is missing
	{"required: --local-rank", localRankHint},
	{"ModuleNotFoundError: No module named ", "a host's Python may lack it: --venv DIR sends an environment of this machine with its modules, --check-import MODULE looks on all hosts before the start"},
}

const localRankHint = `plx sets the variable LOCAL_RANK. For a flag: bash -c 'exec python3 train.py --local_rank="$LOCAL_RANK"'`

const memoryHint = "plx exec --host %s -- free -h shows its memory, sudo dmesg there which process was killed; fewer workers on the host (--workers-per-host N) or smaller batches need less"

const killedHint = "somebody, or a limit of a batch system or container, killed it: the kernel counted no kill for want of memory on that host. plx exec --host %s -- sudo dmesg shows its last messages"

const suspendedHint = "plx launch --detach leaves the job to its hosts, whatever this machine does: plx attach follows it; --lease TIME lets them wait longer for plx"

// advice returns a hint on how a task failed and on its last lines, or "".
func advice(v protocol.Verdict, tail []string) string {
	if v.Suspended > 0 {
		return suspendedHint
	}
	if v.First != nil && (v.First.OOMKills > 0 || v.First.OOM != "") {
		return fmt.Sprintf(memoryHint, v.Host)
	}
	if v.First != nil && v.First.Signal == int(syscall.SIGKILL) && !v.First.Told && v.First.Cause == "" {
		return fmt.Sprintf(killedHint, v.Host)
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
