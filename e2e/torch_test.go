package e2e

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/testhosts"
)

// needTorch skips a test where there is no PyTorch; in CI that is a failure. With
// -short it skips every test.
func needTorch(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs PyTorch")
	}
	if out, err := exec.Command("/usr/bin/python3", "-c", "import torch").CombinedOutput(); err != nil {
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

// TestTorch launches a program that was written for torch.distributed and
// knows nothing of plx. Its data goes over the second of two networks.
func TestTorch(t *testing.T) {
	needTorch(t)
	b := newBench(t, testhosts.Options{Hosts: 2, Second: true})
	program, err := filepath.Abs("testdata/ddp.py")
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	var res result
	b.carries(4<<20, func() {
		res = b.want(0, "launch", "--hosts", b.ResourceFile("h1: cpu*2", "h2: cpu*2"), "--nic", "eth1", program)
	})
	b.brief(res)
	t.Logf("four ranks on two hosts: %.1f s", time.Since(begun).Seconds())
	weights := map[string]bool{}
	for rank := range 4 {
		out := lines(res.stdout, fmt.Sprintf("worker:%d", rank))
		if len(out) < 2 || out[0] != "sum of ranks 6 of 4" {
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

// TestTorchPage runs every command of docs/torch.md, with the example as train.py. All
// end with the same loss, also the one that may restart: it loses the host of rank 0, and
// two ranks resume from the newest checkpoint that both hosts have.
func TestTorchPage(t *testing.T) {
	needTorch(t)
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3})
	dir := t.TempDir()
	put(t, filepath.Join(dir, "train.py"), trainPage(t), 0o755)
	run := exec.Command("/usr/bin/python3", "-m", "venv", "--without-pip", "--system-site-packages", filepath.Join(dir, ".venv"))
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("make .venv: %v\n%s", err, out)
	}
	// The hosts share the cores of this machine, on which two threads of OpenMP for each
	// worker would mostly wait for one another.
	const two = "h1: cpu OMP_NUM_THREADS=1\nh2: cpu OMP_NUM_THREADS=1\n"
	resources := map[bool]string{false: two, true: two + "h3: cpu OMP_NUM_THREADS=1\n"}
	commands := commandsOf(t, "../docs/torch.md")
	want, restarted := 0.0, false
	for _, command := range commands {
		begun, restarts := time.Now(), strings.Contains(command, "--max-restarts 3")
		put(t, filepath.Join(dir, "resources.txt"), resources[restarts], 0o644)
		r := b.shell(dir, strings.ReplaceAll(command, "--nic ib0", "--nic eth0")+" 2>&1")
		if restarts {
			r.await(r.stdout, "step 50 | saved")
			b.Hosts[0].PowerOff()
			r.await(r.stdout, "2 ranks begin")
			resumes(t, r.want(0).stdout)
			b.gone(0, b.Hosts[1:]...)
			b.Hosts[0].PowerOn()
			restarted = true
		}
		got := finalLoss(t, r.want(0).stdout)
		t.Logf("%s: %.1f s", command, time.Since(begun).Seconds())
		if want == 0 {
			want = got
		}
		if math.Abs(got-want) > 2e-4 { // sums over other numbers of ranks are added in another order
			t.Errorf("%s: the training ends with a loss of %v, want %v", command, got, want)
		}
		if err := os.RemoveAll(filepath.Join(dir, "checkpoints")); err != nil {
			t.Fatal(err)
		}
	}
	if len(commands) < 4 || !restarted {
		t.Errorf("docs/torch.md has the commands %q", commands)
	}
	b.hostsGone(0)
}

// trainPage is the example, but shorter. Before a restart it stands still after step 55.
func trainPage(t *testing.T) string {
	t.Helper()
	text := string(read(t, "../examples/torch/train.py"))
	for old, new := range map[string]string{
		`"--steps", type=int, default=300`:     `"--steps", type=int, default=100`,
		`"--ckpt-every", type=int, default=50`: `"--ckpt-every", type=int, default=10`,
		"time.sleep(args.pause)":               `time.sleep(600 if step == 55 and "TORCHELASTIC_RUN_ID" in os.environ and restarts == "0" and os.environ["TORCHELASTIC_MAX_RESTARTS"] == "3" else 0)`,
	} {
		if strings.Count(text, old) != 1 {
			t.Fatalf("train.py has %d times %s", strings.Count(text, old), old)
		}
		text = strings.Replace(text, old, new, 1)
	}
	return text
}

// shell starts a command line in a folder, with plx on the PATH.
func (b *bench) shell(dir, line string) *running {
	b.t.Helper()
	c := *b
	c.dir, c.plx, c.env = dir, "bash", append(b.env, "PATH="+filepath.Dir(b.plx)+":/usr/bin:"+os.Getenv("PATH"),
		"PET_MASTER_PORT="+freePort(b.t)) // torchrun's own is 29500, which others may use
	return c.start("-c", line)
}

// freePort returns a port that nobody uses now, of those that the kernel gives to nobody
// who has not asked for that very one.
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

// resumes fails the test unless the output is that of a training that lost one of three
// ranks and resumed from a checkpoint.
func resumes(t *testing.T, output string) {
	t.Helper()
	contains(t, output, "3 ranks begin after step 0, restart 0 of 3")
	_, after, _ := strings.Cut(output, "2 ranks begin after step ")
	var step, restarts int
	if _, err := fmt.Sscanf(after, "%d, restart %d of 3", &step, &restarts); err != nil || step < 40 || step > 50 || restarts < 1 {
		t.Errorf("resumed after step %d, restart %d: %v\n%s", step, restarts, err, clip(output))
	}
}

// finalLoss returns the loss that the example's output ends with.
func finalLoss(t *testing.T, output string) float64 {
	t.Helper()
	_, last, _ := strings.Cut(output, "done after step ")
	var steps int
	var loss, accuracy float64
	if _, err := fmt.Sscanf(last, "%d | loss %f | accuracy %f", &steps, &loss, &accuracy); err != nil || accuracy < 0.8 {
		t.Fatalf("no training has ended well: %v\n%s", err, clip(output))
	}
	return loss
}

// fails is a program for torchrun's elastic mode: every generation prints what it is, and
// rank 1 describes its failure in TORCHELASTIC_ERROR_FILE alone.
const fails = `#!/usr/bin/python3
import os, sys, time
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    print(*[os.environ[n] for n in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "RANK", "WORLD_SIZE", "GROUP_WORLD_SIZE", "MASTER_PORT")])
    if os.environ["RANK"] == "0":
        time.sleep(600)
    sys.stderr = open(os.devnull, "w")
    raise ValueError("no data left")
main()
`

// testTorchFailure looks at what a failing program is told, and what plx tells of it.
func testTorchFailure(b *bench) {
	program := filepath.Join(b.t.TempDir(), "fails.py")
	put(b.t, program, fails, 0o755)
	res := b.want(1, "launch", "--hosts", b.ResourceFile("h1", "h2"), "--max-restarts", "1", "--restart-backoff", "100ms", "--grace", "1s", program)
	const cause = "worker:1 on h2 exited with status 1: ValueError: no data left (line 10, in main)"
	b.says(res, cause+": restarting in 100ms (attempt 1 of 1)")
	b.endsWith(res, []string{"last lines of worker:1 on h2:", "  Traceback (.*\n)+plx:   ValueError: no data left", `job \S+: ` + regexp.QuoteMeta(cause+"; 1 of at most 1 restarts were made (--max-restarts)")})
	ports := map[string]bool{}
	out := lines(res.stdout, "worker:1")
	for generation, line := range out {
		f := strings.Fields(line)
		if len(f) != 7 || !strings.HasPrefix(f[0], "fails.py-") || strings.Join(f[1:6], " ") != fmt.Sprintf("%d 1 1 2 2", generation) {
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
