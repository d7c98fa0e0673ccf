package testhosts

import (
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// SetGPUs gives the host so many fake GPUs, by the stand-in for nvidia-smi of
// gpuprobe's test data in /usr/local/bin. Further lines are facts for the
// stand-in, such as "mode hang" or "driver 550.54.15"; its first lines say
// which it knows. No GPUs and no facts take the tool away.
func (h *Host) SetGPUs(count int, facts ...string) {
	h.cluster.report.Helper()
	h.cluster.check("set the GPUs of "+h.Name, h.setGPUs(count, facts...))
}

func (h *Host) setGPUs(count int, facts ...string) error {
	if count == 0 && len(facts) == 0 {
		return h.setTool("nvidia-smi", "")
	}
	standIn, err := smi()
	if err != nil {
		return err
	}
	seed := crc32.ChecksumIEEE([]byte(h.Name))
	for i := range count {
		facts = append(facts, fmt.Sprintf("gpu %d|GPU-%08x-0000-4000-8000-%012x|NVIDIA A100-SXM4-80GB|00000000:%02x:00.0|81920|4|0|Default|Disabled",
			i, seed, i, i+1))
	}
	if err := replaceFile(h.path("gpus/facts"), strings.Join(facts, "\n")+"\n", 0o644); err != nil {
		return err
	}
	if err := replaceFile(h.path("gpus/nvidia-smi"), standIn, 0o755); err != nil {
		return err
	}
	return h.setTool("nvidia-smi", "#!/bin/sh\nPLX_FAKE_GPUS=/run/gpus/facts exec /run/gpus/nvidia-smi \"$@\"\n")
}

// smi is the text of the stand-in. It is not embedded, being another package's
// test data.
var smi = sync.OnceValues(func() (string, error) {
	module, err := goTool("list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(module, "gpuprobe", "testdata", "nvidia-smi"))
	return string(text), err
})
