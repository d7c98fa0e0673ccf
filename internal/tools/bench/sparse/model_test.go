package main

import (
	"bytes"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// needTorch skips a test where there is no PyTorch; in CI that is a failure. With
// -short it skips every test.
func needTorch(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs PyTorch")
	}
	if out, err := exec.Command("/usr/bin/python3", "-c", "from importlib import util; assert util.find_spec('torch')").CombinedOutput(); err != nil {
		why := fmt.Sprintf("needs Debian's python3-torch: %v: %s", err, out)
		if os.Getenv("CI") == "true" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
}

// losses runs a program alone and returns the loss of each step.
func losses(t *testing.T, program string, args ...string) (all []float64) {
	t.Helper()
	cmd := exec.Command(program, append([]string{"--vocabulary=300", "--width=24", "--hidden=24", "--length=8", "--batch-size=16",
		"--samples=60", "--every=1", "--learning-rate=0.1"}, args...)...)
	listener, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
	if err != nil {
		t.Fatal(err)
	}
	_, free, _ := net.SplitHostPort(listener.Addr().String()) // it listens on one
	listener.Close()
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+free, "RANK=0", "WORLD_SIZE=1")
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", program, err, &complaint)
	}
	for _, found := range regexp.MustCompile(`step \d+ \| loss ([^ ]+) `).FindAllStringSubmatch(string(out), -1) {
		loss, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, loss)
	}
	return all
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// PyTorch's program trains the model of examples/lm: on other words of the
// same kind its loss falls as far. With dense and with sparse gradients it
// computes the same.
func TestSameModel(t *testing.T) {
	needTorch(t)
	const steps = 120
	ours := losses(t, testhosts.Binary(t, "../../../../examples/lm"), fmt.Sprintf("--steps=%d", steps))
	dense := losses(t, "./ddp_lm.py", fmt.Sprintf("--steps=%d", steps))
	sparse := losses(t, "./ddp_lm.py", "--sparse", "--steps=10")
	if len(ours) != steps || len(dense) != steps || len(sparse) != 10 {
		t.Fatalf("%d, %d and %d losses", len(ours), len(dense), len(sparse))
	}
	for i, loss := range sparse {
		if math.Abs(loss-dense[i]) > 0.002*dense[i] {
			t.Errorf("step %d: loss %v with sparse gradients, %v with dense ones", i, loss, dense[i])
		}
	}
	for _, part := range [][2]int{{0, 20}, {80, 120}} {
		a, b := mean(ours[part[0]:part[1]]), mean(dense[part[0]:part[1]])
		t.Logf("steps %d to %d: %.3f, PyTorch %.3f", part[0], part[1], a, b)
		if math.Abs(a-b) > 0.05*a {
			t.Errorf("steps %v: mean loss %v, PyTorch's is %v", part, a, b)
		}
	}
	if mean(ours[80:]) > 0.8*mean(ours[:20]) {
		t.Error("nothing is learnt")
	}
	if strings.Contains(fmt.Sprint(ours, dense), "NaN") {
		t.Error("a loss is not a number")
	}
}
