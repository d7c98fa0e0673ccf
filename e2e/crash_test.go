package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// crashes is a job in which rank 2 fails and the other ranks then print
// typical errors of Gloo and NCCL. At the start, all ranks print a warning
// that differs only in rank and process number.
const crashes = `
echo "[rank$RANK]: pid $$: UserWarning: 29500 is taken" >&2
if [ "$RANK" = 2 ]; then
	printf '%s\n' "Traceback (most recent call last):" "  File \"$PWD/train.py\", line 8, in load" "ValueError: bad label 11" >&2
	exit 1
fi
printf '[rank%s]: %s\n' $RANK "Traceback (most recent call last):" $RANK "  File \"/usr/lib/torch.py\", line $RANK" $RANK "RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.1]:$$" >&2
exit 1
`

// TestCrashIsShort checks the output of a job of six ranks of which one fails.
// plx prints the traceback of the failed rank, one line for all others, and
// the verdict, which names the cause.
func TestCrashIsShort(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2}).withPlx()
	program := b.script("crash.sh", crashes)
	hosts := b.ResourceFile("h1: cpu*3", "h2: cpu*3")
	res := b.want(1, "launch", "--hosts", hosts, program)
	if all := res.stdout + res.stderr; strings.Count(all, "\n") > 12 {
		t.Errorf("a crash of one of six ranks is %d lines:\n%s", strings.Count(all, "\n"), all)
	}
	for _, once := range []string{"6 workers 2 hosts ! pid ", "worker:2 h1 ! ValueError: bad label 11\n", "5 of 6 workers 2 hosts ! lost a peer: RuntimeError: [./gloo/",
		"failed because of it: worker:0 on h1, worker:1 on h1, worker:3 on h2, worker:4 on h2, worker:5 on h2\n",
		": worker:2 on h1 exited with status 1; its traceback is above\n"} {
		if strings.Count(res.stderr, once) != 1 {
			t.Errorf("not once: %q\n%s", once, res.stderr)
		}
	}

	// With -v, and later in plx logs, all lines are printed.
	everything := func(text string) {
		t.Helper()
		for rank := range 6 {
			if line := fmt.Sprintf("[rank%d]: RuntimeError: ", rank); strings.Contains(text, line) == (rank == 2) {
				t.Errorf("rank %d: wrong lines\n%s", rank, text)
			}
		}
	}
	res = b.want(1, "launch", "-v", "--hosts", hosts, program)
	everything(res.stderr)
	everything(b.want(0, "logs").stderr)
}
