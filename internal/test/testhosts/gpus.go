package testhosts

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// machines lists the recordings of nvidia-smi in gpuprobe's test data. Each
// names the GPU model and the driver version. The fake GPUs are those of these
// machines.
var machines = []string{"v100-sxm3-418", "quadro-rtx4000-535", "l40s-550"}

// setGPUs implements [Host.SetGPUs].
func (d *disk) setGPUs(count int, facts ...string) error {
	if count == 0 && len(facts) == 0 {
		return d.setTool("nvidia-smi", "")
	}
	standIn, err := testData("nvidia-smi")
	if err != nil {
		return err
	}
	recorded, err := d.recorded(count)
	if err != nil {
		return err
	}
	facts = append(recorded, facts...) // the fake nvidia-smi uses the later line if two lines conflict
	if err := replaceFile(d.path("gpus/facts"), strings.Join(facts, "\n")+"\n", 0o644); err != nil {
		return err
	}
	if err := replaceFile(d.path("gpus/nvidia-smi"), standIn, 0o755); err != nil {
		return err
	}
	return d.setTool("nvidia-smi", "#!/bin/sh\nPLX_FAKE_GPUS=/run/gpus/facts exec /run/gpus/nvidia-smi \"$@\"\n")
}

// recorded returns the lines for the fake nvidia-smi that describe count GPUs
// of a recorded machine. The machine may have more GPUs.
func (d *disk) recorded(count int) ([]string, error) {
	var fit [][]string
	for _, name := range machines {
		text, err := testData("recorded/" + name + ".txt")
		if err != nil {
			return nil, err
		}
		before, _, _ := strings.Cut(text, "\nrecorded\n")
		gpus := 0
		facts := slices.DeleteFunc(strings.Split(before, "\n"), func(fact string) bool {
			if strings.HasPrefix(fact, "gpu ") {
				gpus++
				return gpus > count
			}
			return strings.HasPrefix(fact, "#")
		})
		if gpus >= count {
			fit = append(fit, facts)
		}
	}
	if len(fit) == 0 {
		return nil, fmt.Errorf("no machine with %d GPUs was recorded", count)
	}
	return fit[(d.number-1)%len(fit)], nil
}

// testData returns a file of gpuprobe's test data. It reads the file at run
// time, because go:embed cannot embed files of another package.
func testData(name string) (string, error) {
	module, err := moduleFolder()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(module, "gpuprobe", "testdata", filepath.FromSlash(name)))
	return string(text), err
}

var moduleFolder = sync.OnceValues(func() (string, error) { return goTool("list", "-m", "-f", "{{.Dir}}") })
