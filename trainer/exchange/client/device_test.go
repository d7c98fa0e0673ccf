package client

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// plain returns a declaration of two variables that SGD trains.
func plain(virtualWorkers, workers int) layout.Declaration {
	d := example(virtualWorkers, workers)
	d.Optimizer = optimizer.Settings{Rule: optimizer.SGD}
	d.Variables = []layout.Variable{
		{Name: "w", Dtype: layout.Float32, Shape: []int{3, 5}},
		{Name: "big", Dtype: layout.Float32, Shape: []int{3, 1024}},
	}
	return d
}

// toy returns the gradient of every element of a variable.
func toy(variable, leaf int, step uint64) float32 {
	return float32(1+variable) * float32(1+leaf) * float32(step+1) / 8
}

// toySteps makes all members take the steps from from to to.
func toySteps(t *testing.T, members []*member, from, to uint64, rate float64) {
	t.Helper()
	errs := make([]error, len(members))
	var running sync.WaitGroup
	for i, m := range members {
		running.Go(func() {
			for s := from; s < to && errs[i] == nil; s++ {
				errs[i] = m.toyStep(s, rate)
			}
		})
	}
	running.Wait()
	must(t, errs)
}

func (m *member) toyStep(s uint64, rate float64) error {
	if m.Step() != s {
		return fmt.Errorf("worker:%d is at step %d, want %d", m.rank, m.Step(), s)
	}
	if err := m.Begin(rate); err != nil {
		return err
	}
	var losses [][]float64
	for leaf := m.virtual.Lo; leaf < m.virtual.Hi; leaf++ {
		for i := range m.holders.d.Variables {
			g := wire.Floats[float32](m.Gradient(leaf, i))
			for j := range g {
				g[j] = toy(i, leaf, s)
			}
			m.Contribute(leaf, i)
		}
		losses = append(losses, []float64{1})
	}
	end, err := m.Finish(context.Background(), losses)
	if err == nil && (end.Step != s || end.Loss != 1) {
		return fmt.Errorf("worker:%d: outcome %+v of step %d", m.rank, end, s)
	}
	return err
}

// device simulates a GPU's memory, which is written through a small staging
// buffer.
type device struct {
	mu     sync.Mutex
	memory [][]byte // by variable
	pieces int      // number of pieces that were copied to the device
}

const staging = 1 << 10 // size of the staging buffer in bytes

func (d *device) write(p layout.Piece, values [][]byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pieces++
	from, to := p.Offset*4, (p.Offset+p.Count)*4
	value, into := values[p.Variable][from:to], d.memory[p.Variable][from:to]
	for len(value) > 0 {
		n := copy(into[:min(staging, len(into))], value)
		into, value = into[n:], value[n:]
	}
}

// If each piece is copied to a device when it arrives, the device finally has
// the same bits as the host's memory.
func TestValuesOnDeviceHaveSameBits(t *testing.T) {
	const steps, rate = 4, 0.5
	for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce} {
		j := newJob(t, plain(3, 3), a, 2)
		devices, members := make([]*device, 3), make([]*member, 3)
		for rank := range devices {
			devices[rank] = &device{}
		}
		j.arrived = func(rank int, p layout.Piece) { devices[rank].write(p, members[rank].values) }
		for rank, m := range j.connect(t) {
			members[rank] = m
			for _, memory := range m.values {
				devices[rank].memory = append(devices[rank].memory, bytes.Clone(memory))
			}
		}
		toySteps(t, members, 0, steps, rate)
		for rank, d := range devices {
			for i, memory := range d.memory {
				if !bytes.Equal(memory, members[rank].values[i]) {
					t.Errorf("%s, worker:%d: %q has other bits on a device", a, rank, j.d.Variables[i].Name)
				}
			}
			if want := steps * len(j.d.Pieces); d.pieces != want {
				t.Errorf("%s, worker:%d: %d pieces were written, want %d", a, rank, d.pieces, want)
			}
		}
		leave(t, j, members)
	}
}

// A worker receives the new value of a piece from one holder while another
// holder still waits for gradients.
func TestValueArrivesWhileOtherPiecesAreMissing(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce} {
		d := plain(2, 2)
		d.BucketBytes = 64
		j, arrived := newJob(t, d, a, 2), make(chan layout.Piece, 9)
		j.arrived = func(rank int, p layout.Piece) {
			if rank == 0 {
				arrived <- p
			}
		}
		members := j.connect(t)
		for _, m := range members {
			must(t, []error{m.Begin(0.5)})
		}
		give := func(rank, variable int) {
			clear(members[rank].Gradient(rank, variable))
			wire.Floats[float32](members[rank].Gradient(rank, variable))[0] = 2
			members[rank].Contribute(rank, variable)
		}
		before := wire.Floats[float32](members[0].values[0])[0]
		give(0, 0)
		give(0, 1)
		give(1, 0)
		if p := within(t, arrived); p.Variable != 0 {
			t.Errorf("%s: %+v has arrived, and worker:1 has not contributed to it", a, p)
		}
		if got := wire.Floats[float32](members[0].values[0])[0]; got != before-1 {
			t.Errorf("%s: %v has arrived, want %v", a, got, before-1)
		}
		give(1, 1)
		var finishing sync.WaitGroup
		errs := make([]error, len(members))
		for i, m := range members {
			finishing.Go(func() { _, errs[i] = m.Finish(context.Background(), [][]float64{{1}}) })
		}
		finishing.Wait()
		must(t, errs)
		leave(t, j, members)
	}
}
