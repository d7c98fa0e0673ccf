//go:build long

package e2e

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestTorchPage runs every command of docs/torch.md and of its further pages,
// with the example as train.py. All trainings must end with the same loss. One
// of them loses the host of rank 0, and two ranks resume from the newest
// checkpoint that both remaining hosts have.
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
	// All hosts share the cores of this machine. With two OpenMP threads per
	// worker, the threads would mostly wait for each other.
	const two = "h1: cpu OMP_NUM_THREADS=1\nh2: cpu OMP_NUM_THREADS=1\n"
	resources := map[bool]string{false: two, true: two + "h3: cpu OMP_NUM_THREADS=1\n"}
	commands := commandsOf(t, "../docs/torch.md")
	for _, command := range append(commandsOf(t, "../docs/variables.md"), commandsOf(t, "../docs/environment.md")...) {
		if !slices.Contains(commands, command) {
			commands = append(commands, command)
		}
	}
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
		if strings.HasPrefix(command, "plx exec ") { // it trains nothing
			r.want(0)
			continue
		}
		got := finalLoss(t, r.want(0).stdout)
		t.Logf("%s: %.1f s", command, time.Since(begun).Seconds())
		if want == 0 {
			want = got
		}
		if math.Abs(got-want) > 2e-4 { // other numbers of ranks add in another order, so rounding differs
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

// trainPage writes a shorter version of the example. Until a restart, it stops
// after step 55 and waits.
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

// resumes fails the test unless the output shows that a training lost one of
// three ranks and then resumed from a checkpoint.
func resumes(t *testing.T, output string) {
	t.Helper()
	contains(t, output, "3 ranks begin after step 0, restart 0 of 3")
	_, after, _ := strings.Cut(output, "2 ranks begin after step ")
	var step, restarts int
	if _, err := fmt.Sscanf(after, "%d, restart %d of 3", &step, &restarts); err != nil || step < 40 || step > 50 || restarts < 1 {
		t.Errorf("resumed after step %d, restart %d: %v\n%s", step, restarts, err, clip(output))
	}
}

// finalLoss returns the loss in the last line of the example's output.
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
