//go:build linux

package sampler

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/plx-run/plx/gpuprobe"
)

// gpuUse asks the GPUs' tool how much each is used: percent by what a job books. It gives up after
// limit, and leaves a tool behind that SIGKILL does not end: a driver may hold it.
func gpuUse(limit time.Duration) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	type answer struct {
		out []byte
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		defer cancel()
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", gpuprobe.UseScript())
		cmd.WaitDelay = limit
		out, err := cmd.Output()
		answers <- answer{out, err}
	}()
	select {
	case a := <-answers:
		if a.err != nil {
			return nil, fmt.Errorf("ask for the use of GPUs: %w", a.err)
		}
		use := map[string]int{}
		for _, u := range gpuprobe.ParseUse(string(a.out)) {
			use[u.ID()] = u.UtilizationPercent
		}
		return use, nil
	case <-time.After(limit):
		return nil, fmt.Errorf("ask for the use of GPUs: no answer within %v", limit)
	}
}
