//go:build linux

package sampler

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// ask prints a line "UUID, PERCENT" for each GPU of the host. The folders are those in
// which gpuprobe looks too.
const ask = `PATH=$PATH:/usr/bin:/usr/local/nvidia/bin:/usr/local/cuda/bin:/opt/bin:/run/nvidia/driver/usr/bin:/usr/lib/wsl/lib:/run/current-system/sw/bin
exec nvidia-smi --query-gpu=uuid,utilization.gpu --format=csv,noheader,nounits`

// gpuUse asks nvidia-smi how much each GPU is used: percent by UUID. It gives up after
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
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", ask)
		cmd.WaitDelay = limit
		out, err := cmd.Output()
		answers <- answer{out, err}
	}()
	select {
	case a := <-answers:
		if a.err != nil {
			return nil, fmt.Errorf("ask nvidia-smi for the use of GPUs: %w", a.err)
		}
		return parseUse(string(a.out)), nil
	case <-time.After(limit):
		return nil, fmt.Errorf("ask nvidia-smi for the use of GPUs: no answer within %v", limit)
	}
}

// parseUse reads lines "UUID, PERCENT". It leaves out those without a number, as of a GPU
// in MIG mode.
func parseUse(text string) map[string]int {
	use := map[string]int{}
	for line := range strings.Lines(text) {
		uuid, percent, _ := strings.Cut(strings.TrimSpace(line), ", ")
		if n, err := strconv.Atoi(percent); err == nil {
			use[uuid] = n
		}
	}
	return use
}
