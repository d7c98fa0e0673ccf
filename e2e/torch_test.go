package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// needTorch skips a test on machines without PyTorch; in CI it fails the test
// instead. With -short it always skips the test.
func needTorch(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs PyTorch")
	}
	if out, err := exec.Command("/usr/bin/python3", "-c", "from importlib import util; assert util.find_spec('torch')").CombinedOutput(); err != nil {
		skip(t, fmt.Sprintf("needs Debian's python3-torch: %v: %s", err, out))
	}
}

func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// TestTorch uses --workdir to launch a program that was written for
// torch.distributed, without code for plx. The program's data goes over the
// second of two networks.
func TestTorch(t *testing.T) {
	t.Parallel()
	needTorch(t)
	b := newBench(t, testhosts.Options{Hosts: 2, Second: true}).withPlx()
	b.dir = t.TempDir()
	put(t, filepath.Join(b.dir, "ddp.py"), string(read(t, "testdata/ddp.py")), 0o644)
	begun := time.Now()
	var res result
	b.carries(4<<20, func() {
		res = b.want(0, "launch", "--hosts", b.ResourceFile("h1: cpu*2", "h2: cpu"), "--nic", "eth1", "--env", "OMP_NUM_THREADS=1", "--workdir", ".", "/usr/bin/python3", "ddp.py")
	})
	b.brief(res)
	t.Logf("three ranks on two hosts: %.1f s", time.Since(begun).Seconds())
	weights := map[string]bool{}
	for rank := range 3 {
		out := lines(res.stdout, fmt.Sprintf("worker:%d", rank))
		if len(out) < 2 || out[0] != "sum of ranks 3 of 3" {
			t.Fatalf("worker:%d printed %q\n%s", rank, out, clip(res.stderr))
		}
		weights[out[len(out)-1]] = true
	}
	if len(weights) != 1 {
		t.Errorf("the ranks have different weights: %v", weights)
	}
	var first, last float64
	chief := strings.Join(lines(res.stdout, "worker:0"), "\n")
	if _, err := fmt.Sscanf(chief[strings.Index(chief, "step 0"):], "step 0 loss %f\nstep 19 loss %f", &first, &last); err != nil || last > first/10 {
		t.Errorf("the loss went from %v to %v, %v\n%s", first, last, err, chief)
	}
	b.hostsGone(0)
	t.Run("a program says why it fails", func(t *testing.T) { testTorchFailure(b.in(t)) })
}

// fails is a program for torchrun's elastic mode. Rank 1 of every generation
// prints its environment, and then fails; it describes the failure only in the
// file TORCHELASTIC_ERROR_FILE.
const fails = `#!/usr/bin/python3
import os, sys, time
if os.environ["RANK"] == "0":
    time.sleep(600)
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    print(*[os.environ[n] for n in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "RANK", "WORLD_SIZE", "GROUP_WORLD_SIZE", "MASTER_PORT")])
    sys.stderr = open(os.devnull, "w")
    raise ValueError("no data left")
main()
`

// testTorchFailure checks the environment of a failing program, and how plx
// reports the failure.
func testTorchFailure(b *bench) {
	program := filepath.Join(b.t.TempDir(), "fails.py")
	put(b.t, program, fails, 0o755)
	res := b.want(1, "launch", "--hosts", b.ResourceFile("h1", "h2"), "--max-restarts", "1", "--restart-backoff", "100ms", "--grace", "1s", program)
	const cause = "worker:1 on h2 exited with status 1: ValueError: no data left (line 10, in main)"
	b.says(res, cause+": restarting in 100ms (attempt 1 of 1)")
	b.endsWith(res, []string{"last lines of worker:1 on h2:", "  Traceback (.*\n)+plx:   ValueError: no data left", `job \S+ \(\S+\): ` + regexp.QuoteMeta(cause+"; 1 of at most 1 restarts were made (--max-restarts)")})
	ports := map[string]bool{}
	out := lines(res.stdout, "worker:1")
	for generation, line := range out {
		f := strings.Fields(line)
		if len(f) != 7 || !strings.HasPrefix(f[0], "fails-") || strings.Join(f[1:6], " ") != fmt.Sprintf("%d 1 1 2 2", generation) {
			b.t.Errorf("generation %d was told %q", generation, line)
			continue
		}
		ports[f[6]] = true
	}
	if len(out) != 2 || len(ports) != 2 {
		b.t.Errorf("worker:1 printed %q, want two generations with two ports", out)
	}
	b.hostsGone(0)
}

// shell runs a command line in folder dir, with plx on the PATH.
func (b *bench) shell(dir, line string) *running {
	b.t.Helper()
	c := *b
	c.dir, c.plx, c.env = dir, "bash", append(b.env, "PATH="+filepath.Dir(b.plx)+":/usr/bin:"+os.Getenv("PATH"),
		"PET_MASTER_PORT="+freePort(b.t)) // other programs may use torchrun's default port, 29500
	return c.start("-c", line)
}

// freePort returns an unused port outside of the range that the kernel assigns
// automatically.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		ln, err := net.Listen("tcp", fmt.Sprintf(":%d", 30000+rand.N(2000)))
		if err != nil {
			continue // it is used
		}
		_, port, err := net.SplitHostPort(ln.Addr().String())
		if err := errors.Join(err, ln.Close()); err != nil {
			t.Fatal(err)
		}
		return port
	}
	t.Fatal("no port is free")
	panic("unreachable")
}
