//go:build long

package e2e

import (
	"context"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
)

// The scripts of docs/pytorch-twins.md run in one process and in two processes
// of torchrun. If a script only divides the batch among its processes, both
// runs must print the same losses.
func TestTwins(t *testing.T) {
	needTorch(t)
	for name, arguments := range map[string][]string{
		"linear": {"--steps", "41"},
		"mnist":  {"--steps", "101", "--samples", "960"},
		"lm":     {"--steps", "11", "--every", "10", "--vocabulary", "200", "--samples", "20", "--width", "12", "--hidden", "16", "--length", "5"},
	} {
		program, err := filepath.Abs("../docs/twins/" + name + ".py")
		if err != nil {
			t.Fatal(err)
		}
		alone := twin(t, "/usr/bin/python3", append([]string{program}, arguments...)...)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(ln.Addr().String()) // it has one
		ln.Close()
		two := twin(t, "/usr/bin/torchrun", append([]string{"--redirects", "1", "--tee", "1", "--nproc_per_node", "2",
			"--master_addr", "127.0.0.1", "--master_port", port, program}, arguments...)...)
		a, b := twinLosses(t, alone), twinLosses(t, two)
		if len(a) < 2 || len(a) != len(b) || a[len(a)-1] >= a[0] || b[len(b)-1] >= b[0] {
			t.Errorf("%s: want losses that fall, as many in both\nalone %s\ntwo processes %s", name, alone, two)
			continue
		}
		for i := range a {
			if name != "lm" && math.Abs(a[i]-b[i]) > 1e-3*a[i]+1e-6 {
				t.Errorf("%s: line %d has loss %v alone, %v on two processes", name, i, a[i], b[i])
			}
		}
	}
}

// twinLosses returns the losses that a script has printed.
func twinLosses(t *testing.T, printed string) (all []float64) {
	for _, found := range regexp.MustCompile(`step \d+ \| loss (\S+)`).FindAllStringSubmatch(printed, -1) {
		x, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Error(err)
		}
		all = append(all, x)
	}
	return all
}

// twin runs a program and returns its output.
func twin(t *testing.T, program string, arguments ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, arguments...)
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=lo")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", program, arguments, err, out)
	}
	return string(out)
}
