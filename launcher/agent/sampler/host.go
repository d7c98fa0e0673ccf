//go:build linux

package sampler

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/launcher/protocol"
)

// Host measures the host's use of CPU, memory, network and GPUs. Its methods
// may be called from any goroutine.
type Host struct {
	gpus *gpus

	mu   sync.Mutex
	last counters
	at   time.Time // when the counters in last were read
	use  protocol.HostUse
	err  error // error of the newest readCounters; nil if all counters could be read

	watchGPUs bool            // true if Run also calls the GPU tool, such as nvidia-smi
	history   metrics.History // all samples so far, for the job's metrics
	grown     bool            // true if history has samples that Encoded has not returned yet
}

// NewHost returns a Host without samples. It runs the GPU tool with shell. If
// shell is nil, it uses os/exec, which is forbidden in a process that uses
// process.Children.
func NewHost(shell Shell) *Host {
	if shell == nil {
		shell = execute
	}
	h := &Host{gpus: &gpus{shell: shell}, at: time.Now(), use: protocol.HostUse{Every: protocol.SampleEvery}}
	h.last, h.err = readCounters()
	h.note()
	return h
}

// Close kills a running call of the GPU tool. The Host never calls the tool
// again.
func (h *Host) Close() { h.gpus.close() }

// Keep makes Run append its samples to history. If gpus is true, Run also
// calls the GPU tool.
func (h *Host) Keep(history metrics.History, gpus bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.history, h.watchGPUs = history, gpus
}

// Encoded takes a last sample and returns the encoded history. It returns nil
// if the history has no new sample since the previous call.
func (h *Host) Encoded() (encoded []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.take(time.Now())
	if h.grown {
		encoded, _ = h.history.AppendBinary(nil) // AppendBinary of a History always returns a nil error
	}
	h.grown = false
	return encoded
}

// add appends a sample to the history. The caller holds h.mu.
func (h *Host) add(now time.Time, s protocol.Sample) {
	var values metrics.Sample
	add := func(name string, value float64) {
		values = append(values, metrics.Value{Name: name, Number: metrics.Number(value)})
	}
	add(metrics.CPUs, float64(h.use.CPUs))
	add(metrics.CPU, float64(s.CPU))
	add(metrics.Memory, float64(s.Memory))
	add(metrics.Received, float64(s.Received))
	add(metrics.Sent, float64(s.Sent))
	gpus, _ := h.gpus.known(now, nil)
	for _, g := range gpus {
		if g.Percent >= 0 {
			add(metrics.OfGPU(metrics.GPUPercent, g.Index), float64(g.Percent))
		}
		if g.MemoryUsed >= 0 {
			add(metrics.OfGPU(metrics.GPUMemory, g.Index), float64(g.MemoryUsed))
		}
	}
	h.history.Add(now, values)
	h.grown = true
}

// Run takes a sample every protocol.SampleEvery until quit is closed.
func (h *Host) Run(quit <-chan struct{}) {
	tick := time.NewTicker(protocol.SampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-quit:
			return
		case now := <-tick.C:
			h.mu.Lock()
			h.take(now)
			ask := h.watchGPUs
			h.mu.Unlock()
			if ask {
				h.gpus.refresh(now)
			}
		}
	}
}

// MinInterval is the shortest time between two samples. The kernel's CPU time
// counters advance in steps of 10 ms, so a shorter interval would be inexact.
const MinInterval = 200 * time.Millisecond

// take adds a sample for the time since the previous sample, unless that time
// is shorter than MinInterval. The caller holds h.mu.
func (h *Host) take(now time.Time) {
	passed := now.Sub(h.at)
	if passed < MinInterval {
		return
	}
	next, err := readCounters()
	sample := h.last.until(next, passed)
	sample.GPU = h.gpus.busy(now)
	h.last, h.at, h.err = next, now, err
	h.note()
	h.add(now, sample)
	h.use.Samples = append(h.use.Samples, sample)
	h.use.Samples = slices.Delete(h.use.Samples, 0, max(0, len(h.use.Samples)-protocol.MaxSamples))
}

// note copies to h.use the values that do not depend on an earlier reading:
// number of CPUs, load average and total memory.
func (h *Host) note() {
	h.use.CPUs, h.use.Load, h.use.MemoryTotal = h.last.cpus, h.last.load, h.last.memoryTotal
}

// Use returns the host's use of CPU, memory, network and GPUs. owners maps the
// UUID or PCI address of a reserved GPU to the task that it is reserved for.
// Use does not wait for the GPU tool: it starts a call of the tool in the
// background if the newest result is old, and a later call of Use returns the
// new result.
func (h *Host) Use(owners map[string]string) protocol.HostUse {
	now := time.Now()
	h.gpus.refresh(now)
	gpus, gpuErr := h.gpus.known(now, owners)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.use.Samples) == 0 {
		h.take(now)
	}
	use := h.use
	use.Samples, use.GPUs = slices.Clone(use.Samples), gpus
	if err := errors.Join(h.err, gpuErr); err != nil {
		use.Trouble = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return use
}

// until returns the host's use of CPU, memory and network between the reading
// of the counters c and the later reading next. passed is the time between the
// two.
func (c counters) until(next counters, passed time.Duration) protocol.Sample {
	s := protocol.Sample{Memory: next.memoryUsed}
	busy, idle := float64(since(c.busy, next.busy)), float64(since(c.idle, next.idle))
	if busy+idle > 0 {
		s.CPU = float32(float64(next.cpus) * busy / (busy + idle))
	}
	var received, sent float64
	for name, now := range next.network {
		before, known := c.network[name]
		if !known { // skip an interface that was just moved to this host's network namespace: its counters include earlier bytes
			continue
		}
		received += float64(since(before.received, now.received))
		sent += float64(since(before.sent, now.sent))
	}
	s.Received, s.Sent = rate(received, passed), rate(sent, passed)
	return s
}

// since returns by how much a counter has grown. If the counter is smaller
// than before, it was reset at an unknown time, and since returns 0.
func since(before, now uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}

// rate returns the number of bytes per second.
func rate(bytes float64, passed time.Duration) int64 {
	return int64(min(bytes/passed.Seconds(), 1<<62))
}
