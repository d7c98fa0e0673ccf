package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// plain is a declaration of two variables that SGD trains.
func plain(virtualWorkers, workers int) layout.Declaration {
	d := example(virtualWorkers, workers)
	d.Optimizer = optimizer.Settings{Rule: optimizer.SGD}
	d.Variables = []layout.Variable{
		{Name: "w", Dtype: layout.Float32, Shape: []int{3, 5}},
		{Name: "big", Dtype: layout.Float32, Shape: []int{3, 1024}},
	}
	return d
}

// toy is the gradient of every element of a variable.
func toy(variable, leaf int, step uint64) float32 {
	return float32(1+variable) * float32(1+leaf) * float32(step+1) / 8
}

// toySteps has all members take steps.
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

// device is a worker's memory elsewhere, behind a small staging buffer.
type device struct {
	mu     sync.Mutex
	memory [][]byte // by variable
	writes int
}

const staging = 1 << 10 // bytes that one copy takes

func (d *device) at(p layout.Piece) []byte {
	return d.memory[p.Variable][p.Offset*4 : (p.Offset+p.Count)*4]
}

func (d *device) Read(p layout.Piece) (value []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for from := d.at(p); len(from) > 0; from = from[min(staging, len(from)):] {
		value = append(value, from[:min(staging, len(from))]...)
	}
	return value
}

func (d *device) Write(p layout.Piece, value []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes++
	for to := d.at(p); len(value) > 0; {
		n := copy(to[:min(staging, len(to))], value)
		to, value = to[n:], value[n:]
	}
}

// Values and gradients that arrive piece by piece in staging memory, as those of
// a GPU do, have the bits of those that are in the host's.
func TestDeviceHoldsTheSameBits(t *testing.T) {
	const steps, rate = 4, 0.5
	j := newJob(t, plain(3, 3), policy.Servers, 2)
	host := j.connect(t)
	toySteps(t, host, 0, steps, rate)
	leave(t, j, host)
	j = newJob(t, plain(3, 3), policy.Servers, 2)
	var connecting sync.WaitGroup
	devices, members, errs := make([]*device, 3), make([]*member, 3), make([]error, 3)
	for rank := range devices {
		devices[rank] = &device{memory: firstValues(&j.d, rank+1)}
		config := j.config(rank, nil)
		config.Device = devices[rank]
		connecting.Go(func() {
			c, err := Connect(context.Background(), config)
			members[rank], errs[rank] = &member{c, nil, rank}, err
		})
	}
	connecting.Wait()
	must(t, errs)
	for _, m := range members {
		t.Cleanup(func() { m.Abort(errors.New("the test is over")) })
	}
	toySteps(t, members, 0, steps, rate)
	for rank, d := range devices {
		for i, memory := range d.memory {
			if string(memory) != string(host[rank].values[i]) {
				t.Errorf("worker:%d: %q has other bits on a device", rank, j.d.Variables[i].Name)
			}
		}
		if want := (steps + 1) * len(j.d.Pieces); d.writes != want {
			t.Errorf("worker:%d: %d pieces were written, want %d", rank, d.writes, want)
		}
	}
	leave(t, j, members)
}
