package jobs

import "strings"

// advices are what a program's last lines show that a user may not know of plx.
var advices = []struct{ shows, hint string }{
	{"invalid device ordinal", "--visible host shows a worker all GPUs of its host, to choose by LOCAL_RANK; with --visible own its GPU is cuda:0"},
	{"required: --local_rank", localRankHint}, // as argparse names a flag that is missing
	{"required: --local-rank", localRankHint},
}

const localRankHint = `plx sets the variable LOCAL_RANK. For a flag: bash -c 'exec python3 train.py --local_rank="$LOCAL_RANK"'`

// advice returns a hint on the last lines of a program that failed, or "".
func advice(tail []string) string {
	for _, line := range tail {
		for _, a := range advices {
			if strings.Contains(line, a.shows) {
				return a.hint
			}
		}
	}
	return ""
}
