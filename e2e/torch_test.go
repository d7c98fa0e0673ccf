package e2e

import (
	"fmt"
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
