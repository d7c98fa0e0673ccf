package cudatest

import (
	"sync"

	"github.com/plx-run/plx/internal/ptx"
	"github.com/plx-run/plx/trainer/executor/device"
)

// kernelTable numbers kernels, from 1.
type kernelTable struct {
	mu  sync.Mutex
	all []*ptx.Kernel
}

func (t *kernelTable) add(k *ptx.Kernel) device.Kernel {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, k)
	return device.Kernel(len(t.all))
}

func (t *kernelTable) of(k device.Kernel) *ptx.Kernel {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k == 0 || int(k) > len(t.all) {
		return nil
	}
	return t.all[k-1]
}
