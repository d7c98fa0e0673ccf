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

// Host measures how much of the host is used. Any goroutine may call its methods.
type Host struct {
	gpus *gpus

	mu   sync.Mutex
	last counters
	at   time.Time // of last
	use  protocol.HostUse
	err  error // what could not be measured last

	watchGPUs bool            // Run has the tool of the GPUs asked
	history   metrics.History // what the samples have measured
	grown     bool            // since Encoded was called last
}

// NewHost returns a Host that has not taken a sample. It asks the tool of the GPUs by shell; nil stands for
// os/exec, which a process with process.Children must not use.
func NewHost(shell Shell) *Host {
	if shell == nil {
		shell = execute
	}
	h := &Host{gpus: &gpus{shell: shell}, at: time.Now(), use: protocol.HostUse{Every: protocol.SampleEvery}}
	h.last, h.err = readCounters()
	h.note()
	return h
}

// Close ends a call of the tool that is under way. The Host asks none from then on.
func (h *Host) Close() { h.gpus.close() }

// Keep has Run add to a history of the host's use, and ask the tool of its GPUs if gpus is set.
func (h *Host) Keep(history metrics.History, gpus bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.history, h.watchGPUs = history, gpus
}

// Encoded takes a last sample, and returns the encoding of the history; nil: it has not grown since the
// last call.
func (h *Host) Encoded() (encoded []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.take(time.Now())
	if h.grown {
		encoded, _ = h.history.AppendBinary(nil) // it returns no error
	}
	h.grown = false
	return encoded
}

// add adds a sample to the history. The caller holds mu.
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

// Soonest is the shortest time between two samples. Counters of processors advance every 10 ms.
const Soonest = 200 * time.Millisecond

// take takes a sample of the time since the last one. The caller holds mu.
func (h *Host) take(now time.Time) {
	passed := now.Sub(h.at)
	if passed < Soonest {
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

// note notes what is known without a second sample.
func (h *Host) note() {
	h.use.CPUs, h.use.Load, h.use.MemoryTotal = h.last.cpus, h.last.load, h.last.memoryTotal
}

// Use returns how much of the host is used. owners are the tasks that have booked GPUs, by what
// protocol.Claim says of these. It does not wait for the GPUs' tool: each call of Use has the tool asked, if
// that has not happened lately, and the next one returns the answer.
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

// until returns what a host has done until the next counters, which were read so much later.
func (c counters) until(next counters, passed time.Duration) protocol.Sample {
	s := protocol.Sample{Memory: next.memoryUsed}
	busy, idle := float64(since(c.busy, next.busy)), float64(since(c.idle, next.idle))
	if busy+idle > 0 {
		s.CPU = float32(float64(next.cpus) * busy / (busy + idle))
	}
	var received, sent float64
	for name, now := range next.network {
		before, known := c.network[name]
		if !known { // it may have counted long before it came to this host
			continue
		}
		received += float64(since(before.received, now.received))
		sent += float64(since(before.sent, now.sent))
	}
	s.Received, s.Sent = rate(received, passed), rate(sent, passed)
	return s
}

// since is by how much a counter has grown. One that is less than before began again at an unknown time.
func since(before, now uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}

// rate is how many bytes that is in a second.
func rate(bytes float64, passed time.Duration) int64 {
	return int64(min(bytes/passed.Seconds(), 1<<62))
}
