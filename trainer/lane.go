package trainer

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/plx-run/plx/trainer/executor"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// lane computes one virtual worker after the other, on one goroutine at a
// time, with a graph of its own: Gorgonia's operations carry state, so graphs
// are not shared.
type lane struct {
	model   Model
	program *executor.Program
	inputs  []*tensor.Dense // by model.Inputs
	lookups []lookedUp
	// gradients is where the program writes: by variable, set for every run,
	// then by lookup, the lane's own memory.
	gradients [][]byte
	tables    [][]byte // of the latter, all lookups of a table together
	metrics   []string // names, sorted
	fetches   []string
}

// lookedUp is a place where rows of a table come in.
type lookedUp struct {
	table int // index in Model.Embeddings
	name  string
	rows  *tensor.Dense // (n, width)
	index []int64       // (n)
}

// building guards Gorgonia's construction of graphs, which counts and pools
// in variables of its package.
var building sync.Mutex

// newLane builds the graph for so many rows of a batch. values are bound to
// the kept variables in order, nil makes them out of what Build bound; all
// lanes share them. Gradients are computed where train is set.
func newLane(build Build, rows int, values []gorgonia.Value, train bool) (*lane, []gorgonia.Value, error) {
	building.Lock()
	defer building.Unlock()
	g := gorgonia.NewGraph()
	model, err := build(g, rows)
	if err != nil {
		return nil, nil, fmt.Errorf("build the model: %w", err)
	}
	if err := model.check(); err != nil {
		return nil, nil, err
	}
	if values, err = model.bind(values); err != nil {
		return nil, nil, err
	}
	l := &lane{
		model:   model,
		metrics: slices.Sorted(maps.Keys(model.Metrics)),
		fetches: slices.Sorted(maps.Keys(model.Fetches)),
	}
	if l.program, err = executor.Compile(g, l.plan(values, train)); err != nil {
		return nil, nil, fmt.Errorf("compile the model: %w", err)
	}
	l.take(train)
	return l, values, nil
}

// plan is what the executor is to compute.
func (l *lane) plan(values []gorgonia.Value, train bool) executor.Plan {
	m := l.model
	p := executor.Plan{
		Inputs:      slices.Concat(m.Inputs, m.lookups()),
		Fixed:       m.kept(),
		FixedValues: values,
		Loss:        m.Loss,
	}
	if train {
		p.Differentiate = slices.Concat(m.Variables, m.lookups())
		for _, s := range m.States {
			p.Outputs = append(p.Outputs, s.Batch)
		}
	}
	for _, name := range l.metrics {
		p.Outputs = append(p.Outputs, m.Metrics[name])
	}
	for _, name := range l.fetches {
		p.Outputs = append(p.Outputs, m.Fetches[name])
	}
	return p
}

// take notes where the program's inputs and gradients lie.
func (l *lane) take(train bool) {
	for i := range l.model.Inputs {
		l.inputs = append(l.inputs, l.program.Input(i))
	}
	if train {
		l.gradients = make([][]byte, len(l.model.Variables))
	}
	at := len(l.inputs)
	for i, e := range l.model.Embeddings {
		width := e.Width * int(e.dtype().Size())
		var memory []byte
		for _, from := range e.lookups {
			rows := l.program.Input(at)
			l.lookups = append(l.lookups, lookedUp{i, from.name, rows, make([]int64, rows.Shape()[0])})
			memory = append(memory, make([]byte, rows.Shape()[0]*width)...)
			at++
		}
		if !train {
			continue
		}
		l.tables = append(l.tables, memory)
		for _, to := range l.of(i) {
			n := len(to.index) * width
			l.gradients, memory = append(l.gradients, memory[:n:n]), memory[n:]
		}
	}
}

// bind gives every kept variable memory of plx's own: what Build bound may be
// shared with another graph.
func (m Model) bind(values []gorgonia.Value) ([]gorgonia.Value, error) {
	fresh, kept := values == nil, m.kept()
	if !fresh && len(values) != len(kept) {
		return nil, fmt.Errorf("Build made %d variables, the first time %d", len(kept), len(values))
	}
	for i, n := range kept {
		if fresh {
			v, memory, err := newLike(n)
			if err != nil {
				return nil, fmt.Errorf("variable: %w", err)
			}
			if err := copyInto(memory, n.Value()); err != nil {
				return nil, fmt.Errorf("variable %q: first value: %w", n.Name(), err)
			}
			values = append(values, v)
		}
		if !n.Shape().Eq(values[i].Shape()) {
			return nil, fmt.Errorf("variable %q has shape %v, the first time %v", n.Name(), n.Shape(), values[i].Shape())
		}
	}
	return values, nil
}

// run computes one virtual worker, the one that call names. It returns the
// loss, and then the metrics in the order of their names.
func (l *lane) run(call executor.Call, ready func(gradient int), sums []float64) ([]float64, error) {
	loss, err := l.program.Run(call, l.gradients, ready)
	if err != nil {
		return nil, fmt.Errorf("compute the model: %w", err)
	}
	sums = append(sums[:0], loss)
	at := 0
	if call.Train {
		at = len(l.model.States)
	}
	for i, name := range l.metrics {
		x, err := number(l.program.Output(at + i))
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", name, err)
		}
		sums = append(sums, x)
	}
	return sums, nil
}

// state returns what the batch says of a state, after a training run.
func (l *lane) state(i int) gorgonia.Value { return l.program.Output(i) }

// fetched copies the fetches of the last run; they are the caller's.
func (l *lane) fetched(train bool, into map[string][]gorgonia.Value) error {
	at := len(l.metrics)
	if train {
		at += len(l.model.States)
	}
	for i, name := range l.fetches {
		v, err := gorgonia.CloneValue(l.program.Output(at + i))
		if err != nil {
			return fmt.Errorf("fetch %q: %w", name, err)
		}
		into[name] = append(into[name], v)
	}
	return nil
}
