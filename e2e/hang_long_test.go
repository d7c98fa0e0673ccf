//go:build long

package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// hangTime is the hang timeout in tests that cause a hang on purpose.
const hangTime = 5 * time.Second

// planted lists ways to make worker:2 hang in a job of three ranks on Gloo,
// and the cause that plx must report for each.
var planted = []struct{ cause, why string }{
	{"sleeps", "it sleeps"},
	{"is stopped", "is stopped"},
	{"spins", "it computes"},
	{"waits for a file lock", "waits for a lock on "},
	{"left early", "it exited with status 0"},
	{"deadlocks", "waits for a lock or condition of its own"},
	{"never calls the collective", "waits for worker:0"},
	{"waits for a child", "it sleeps: sleep "},
	{"fills a pipe", "it sleeps: sleep "},
	{"opens a fifo", "waits"},
	{"its loader sleeps", "it sleeps"},
	{"its network is cut", "does not acknowledge data"},
	{"is stuck in the kernel", "is stuck in the kernel"},
}

// TestPlantedHangs counts how often plx names the rank that caused a hang,
// within a minute after the hang timeout. It logs the table of
// docs/reliability.md.
func TestPlantedHangs(t *testing.T) {
	needTorch(t)
	b := newBench(t, testhosts.Options{Hosts: 3, Second: true})
	named, late := 0, 0
	for _, p := range planted {
		t.Run(p.cause, func(t *testing.T) {
			b := b.in(t)
			r := b.start(b.gloo(hangTime, "--on-hang", "stop", p.cause)...)
			last := "step 4"
			if p.cause == "its loader sleeps" {
				last = "step 7"
			}
			r.await(r.stdout, last)
			begun := time.Now()
			if p.cause == "its network is cut" {
				b.cutSecond(2)
			}
			r.await(r.stderr, "culprit: ")
			took := time.Since(begun)
			res := r.want(124)
			b.hostsGone(0)
			said := regexp.MustCompile(`culprit: (.*)`).FindStringSubmatch(res.stderr)[1]
			t.Logf("| %s | %s | %.0f |", p.cause, said, took.Seconds())
			if p.cause == "its network is cut" {
				b.healSecond(2)
			}
			if took > hangTime+time.Minute {
				late++
			}
			if strings.HasPrefix(said, "worker:2 on h3: ") && strings.Contains(said, p.why) {
				named++
			} else {
				t.Logf("NOT NAMED, want worker:2 on h3: %s\n%s", p.why, clip(res.stderr))
			}
		})
	}
	if named < len(planted)-1 || late > 0 {
		t.Errorf("%d of %d culprits were named, %d of them late", named, len(planted), late)
	}
}

// slowRuns maps the modes of testdata/hang.py in which a rank is slow but
// makes progress to its slowness, in hang timeouts. plx tolerates a rank that
// only computes for three hang timeouts.
var slowRuns = map[string]float64{
	"slow compilation":           2,
	"slow build in a grandchild": 2,
	"slow evaluation":            2,
	"slow decoding":              2,
	"slow checkpoint":            4,
	"slow download":              4,
	"slow upload":                4,
	"slow printing":              4,
	"slow file":                  4,
	"slow copy":                  4,
	"slow steps":                 4,
	"slow server":                4,
}

// TestSlowIsNotHung runs jobs in which the first rank is slow while the others wait for it.
func TestSlowIsNotHung(t *testing.T) {
	needTorch(t)
	b := newBench(t, testhosts.Options{Hosts: 3, Second: true})
	for cause, times := range slowRuns {
		t.Run(cause, func(t *testing.T) {
			b := b.in(t)
			seconds := fmt.Sprintf("%.0f", times*hangTime.Seconds())
			res := b.want(0, b.gloo(hangTime, "--on-hang", "stop", cause, seconds)...)
			if strings.Contains(res.stderr, "nothing has moved") || !strings.Contains(res.stdout, "step 9") {
				t.Errorf("%s%s", res.stdout, res.stderr)
			}
		})
	}
}

// gloo returns the arguments of a launch of testdata/hang.py with one rank per
// host, which sends its data over the second network. The arguments args begin
// with flags of plx.
func (b *bench) gloo(timeout time.Duration, flag, value string, args ...string) []string {
	b.t.Helper()
	program, err := filepath.Abs("testdata/hang.py")
	if err != nil {
		b.t.Fatal(err)
	}
	return append([]string{"launch", "--hosts", b.ResourceFile("h1: cpu", "h2: cpu", "h3: cpu"), "--nic", "eth1", "--grace", "1s",
		"--env", "OMP_NUM_THREADS=1", "--hang-timeout", timeout.String(), flag, value, program}, args...)
}

// cutSecond drops all packets that a host sends or receives on its second
// network.
func (b *bench) cutSecond(host int) { b.second(host, "add") }

func (b *bench) healSecond(host int) { b.second(host, "del") }

func (b *bench) second(host int, verb string) {
	b.t.Helper()
	h := b.Hosts[host]
	out, err := h.Command(b.t.Context(), "tc", "qdisc", verb, "dev", "eth1", "root", "tbf", "rate", "8kbit", "burst", "1", "limit", "1").CombinedOutput()
	if err != nil {
		b.t.Fatalf("tc on %s: %v\n%s", h.Name, err, out)
	}
}
