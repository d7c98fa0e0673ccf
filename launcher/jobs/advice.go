package jobs

import (
	"fmt"
	"strings"

	"github.com/plx-run/plx/launcher/protocol"
)

// advices are what a program's last lines show that a user may not know of plx.
var advices = []struct{ shows, hint string }{
	{"invalid device ordinal", "--visible host shows a worker all GPUs of its host, to choose by LOCAL_RANK; with --visible own its GPU is cuda:0"},
	{"required: --local_rank", localRankHint}, // as argparse names a flag that is missing
	{"required: --local-rank", localRankHint},
}

const localRankHint = `plx sets the variable LOCAL_RANK. For a flag: bash -c 'exec python3 train.py --local_rank="$LOCAL_RANK"'`

const memoryHint = "plx exec --host %s -- free -h shows its memory, sudo dmesg there which process was killed; fewer workers on the host (--workers-per-host N) or smaller batches need less"

// advice returns a hint on how a task failed and on its last lines, or "".
func advice(v protocol.Verdict, tail []string) string {
	if v.First != nil && (v.First.OOMKills > 0 || v.First.OOM != "") {
		return fmt.Sprintf(memoryHint, v.Host)
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
