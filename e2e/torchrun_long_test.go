//go:build long

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// torchrunTime is how long a test reads torchrun's output after it has caused
// a hang. plx must name the cause within the same time.
const torchrunTime = time.Minute

// TestTorchrunOnPlantedHangs causes the hangs of TestPlantedHangs in jobs of
// torchrun. It fails if torchrun names the rank that hangs, because
// docs/reliability.md says that torchrun does not. It logs the table of that
// page.
func TestTorchrunOnPlantedHangs(t *testing.T) {
	needTorch(t)
	b := newBench(t, testhosts.Options{Hosts: 3, Second: true})
	program, err := os.ReadFile("testdata/hang.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range b.Hosts {
		if err := os.WriteFile(filepath.Join(h.HomeDir, "hang.py"), program, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	lanes := make(chan bool, runtime.NumCPU()) // limited, because on two cores four jobs of three ranks need two minutes to import PyTorch
	var all sync.WaitGroup
	for i, p := range planted[:len(planted)-1] {
		all.Go(func() {
			lanes <- true
			defer func() { <-lanes }()
			t.Run(p.cause, func(t *testing.T) { b.torchrun(t, 29500+i, p.cause, func() {}) })
		})
	}
	all.Wait()
	cut := planted[len(planted)-1].cause // runs alone, because it disconnects the hosts of the other jobs, too
	t.Run(cut, func(t *testing.T) { b.torchrun(t, 29600, cut, func() { b.cutSecond(2) }) })
}

// torchrun runs a job of torchrun with one rank per host, and logs what
// torchrun prints after the hang.
func (b *bench) torchrun(t *testing.T, port int, cause string, plant func()) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := newWatched()
	ends := make(chan string, len(b.Hosts)+1)
	for i, h := range b.Hosts {
		// Use a new PID namespace, because torchrun does not kill its ranks
		// when it is killed. Use --redirects and --tee, because torchrun 1.13
		// fails under Python 3.11 without them; these flags request nothing
		// for rank 0.
		cmd := h.Command(ctx, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "env", "GLOO_SOCKET_IFNAME=eth1", "OMP_NUM_THREADS=1",
			"torchrun", "--redirects", "1:1", "--tee", "1:1", "--nnodes", strconv.Itoa(len(b.Hosts)), "--nproc_per_node", "1", "--node_rank", strconv.Itoa(i),
			"--master_addr", b.Hosts[0].Addr, "--master_port", strconv.Itoa(port), "hang.py", cause)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Error(err)
			return
		}
		go func() {
			err := cmd.Wait()
			ends <- fmt.Sprintf("torchrun on %s ends: %v", h.Name, err)
		}()
	}
	last := "step 4"
	if cause == "its loader sleeps" {
		last = "step 7"
	}
	waiting, stop := context.WithTimeout(ctx, patience.Limit)
	defer stop()
	if !out.await(waiting, last, 1, nil) {
		t.Errorf("%s: torchrun does not come to %s: %s", cause, last, clip(out.String()))
		return
	}
	begun, before := time.Now(), out.String()
	plant()
	var said []string
	go func() { // the first word of an error ends ctx's wait, or ctx does
		if out.await(ctx, "rror", 1, nil) {
			ends <- "the first error"
		}
	}()
	for over := time.After(torchrunTime); over != nil; {
		select {
		case end := <-ends:
			said = append(said, fmt.Sprintf("%.0f s: %s", time.Since(begun).Seconds(), end))
		case <-over:
			over = nil
		}
	}
	text := strings.TrimSpace(strings.TrimPrefix(out.String(), before))
	t.Logf("| %s | %q | %q |", cause, said, clip(text))
	if regexp.MustCompile(`(?i)rank:? ?2|h3`).MatchString(text) {
		t.Errorf("%s: torchrun names the rank: %s", cause, text)
	}
}
