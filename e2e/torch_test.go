package e2e

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
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
}

// finalLoss returns the loss that the example's output ends with.
func finalLoss(t *testing.T, output string) float64 {
	t.Helper()
	at := strings.Index(output, "done after step ")
	var steps int
	var loss, accuracy float64
	if at < 0 {
		t.Fatalf("no training has ended:\n%s", clip(output))
	}
	if _, err := fmt.Sscanf(output[at:], "done after step %d | loss %f | accuracy %f", &steps, &loss, &accuracy); err != nil || accuracy < 0.8 {
		t.Fatalf("%v, or a bad accuracy:\n%s", err, clip(output))
	}
	return loss
}

// example runs a Python program on this machine, in a folder of its own.
func example(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, clip(string(out)))
	}
	return string(out)
}

// TestTorchExample trains the example alone, under torchrun, and under plx while the
// host of rank 0 is lost. The training ends with the same loss: after the restart two
// ranks resume from the newest checkpoint that both hosts have, and take the same rows.
func TestTorchExample(t *testing.T) {
	needTorch(t)
	b := newBench(t, testhosts.Options{Hosts: 3})
	train, err := filepath.Abs("../examples/torch/train.py")
	if err != nil {
		t.Fatal(err)
	}
	want := finalLoss(t, example(t, "/usr/bin/python3", train, "--steps", "120"))
	// Debian's torch 1.13 cannot parse torchrun's defaults of these flags under Python 3.11.
	sameLoss(t, want, finalLoss(t, example(t, "/usr/bin/torchrun", "--redirects", "1", "--tee", "1", "--nproc_per_node", "2", train, "--steps", "120")))

	r := b.start("launch", "--hosts", b.ResourceFile(), "--lease", lease.String(), "--grace", "2s", "--max-restarts", "3", "--min-workers", "2",
		"--restart-backoff", "200ms", "--copy", train, "python3", "train.py", "--ckpt-dir", "~/digits", "--ckpt-every", "10", "--pause", "0.03", "--steps", "120")
	r.says("worker:0", "3 ranks begin after step 0, restart 0 of 3")
	r.says("worker:0", "step 30 | saved")
	b.Hosts[0].PowerOff()
	res := r.want(0)
	sameLoss(t, want, finalLoss(t, res.stdout))
	var resumed, ranks, restarts int
	_, after, _ := strings.Cut(res.stdout, "2 ranks begin")
	if _, err := fmt.Sscanf("2 ranks begin"+after, "%d ranks begin after step %d, restart %d of 3", &ranks, &resumed, &restarts); err != nil || resumed < 20 || restarts < 1 {
		t.Errorf("resumed after step %d, restart %d: %v\n%s", resumed, restarts, err, clip(res.stdout))
	}
	b.says(res, "job", "done, after")
	b.gone(0, b.Hosts[1:]...)
}

// sameLoss fails the test unless two losses differ by less than rounding can make up: sums
// over other numbers of ranks are added in another order.
func sameLoss(t *testing.T, a, b float64) {
	t.Helper()
	if math.Abs(a-b) > 2e-4 {
		t.Errorf("the training ends with a loss of %v, want %v", b, a)
	}
}
