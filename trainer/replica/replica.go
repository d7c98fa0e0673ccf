// Package replica computes a model: a [Replica] is one copy of its graph, used
// by one goroutine at a time, and a [Group] are the replicas of one worker.
//
//	g, err := replica.NewGroup(build, rows, n, nil)     // n graphs, one set of variables
//	err = g.Each(ctx, virtualWorkers, func(r *replica.Replica, index, vw int) error {
//		... r.Load(feed, vw), r.SetGradient(i, memory) ...
//		sums, err := r.Run(call, ready)             // ready(i): gradient i is complete
//		...
//	})
//
// Gorgonia's operations carry state, so replicas share no graph. They share the
// memory of variables, which the caller changes between steps.
//
// # What it refuses
//
// It sends nothing and applies no update. It knows rows of embedding tables as
// inputs only, see package embedding.
package replica

import (
	"fmt"
	"maps"
	"slices"

	"github.com/plx-run/plx/trainer/executor"
	"github.com/plx-run/plx/trainer/executor/gpu"
	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Replica is one copy of the graph. One goroutine uses it at a time.
type Replica struct {
	model   Model
	program *executor.Program
	kept    []gorgonia.Value // the values of Model.Kept, shared by all replicas
	inputs  []*tensor.Dense  // by Model.Inputs: the tensor that the program reads
	shard   [2]*tensor.Dense // by Model.Shard: the tensor that the program reads, or nil
	places  [][]Place        // by table: the inputs of its lookups
	// gradients are, by variable and then by lookup, the memory that the program
	// writes to. SetGradient sets a variable's before every run; a lookup's belongs
	// to the replica. nil means that the replica does not train.
	gradients [][]byte
	tables    [][]byte // by table: the gradients of all its lookups together
	metrics   []string // names of Model.Metrics, sorted
	fetches   []string // names of Model.Fetches, sorted
	carried   []string // names of Model.Carried, sorted; empty if the replica does not train
}

// Place is the input of one lookup.
type Place struct {
	Name string // the feed's name for the indices
	N    int    // number of indices
	Rows []byte // memory of the input: N rows
	// Whole says that N indices for several virtual workers are for each of them, as
	// of any input. The table was a variable, and the indices are an input.
	Whole bool
}

// Least is the fewest indices that so many virtual workers are fed.
func (p Place) Least(vws int) int {
	if p.Whole {
		return p.N
	}
	return vws * p.N
}

// compile returns a replica of m. values are bound to the kept variables in
// order; nil makes them out of what the nodes of m hold. Gradients are computed
// if train is set.
func compile(m Model, values []gorgonia.Value, train bool, on *gpu.Device) (r *Replica, err error) {
	if values, err = m.bind(values); err != nil {
		return nil, err
	}
	r = &Replica{
		model:   m,
		kept:    values,
		metrics: slices.Sorted(maps.Keys(m.Metrics)),
		fetches: slices.Sorted(maps.Keys(m.Fetches)),
	}
	if train {
		r.carried = slices.Sorted(maps.Keys(m.Carried))
	}
	if r.program, err = executor.CompileOn(on, m.Loss.Graph(), r.plan(train)); err != nil {
		return nil, fmt.Errorf("compile the model: %w", err)
	}
	r.locate(train)
	return r, nil
}

// plan is what the executor is to compute.
func (r *Replica) plan(train bool) executor.Plan {
	m := r.model
	p := executor.Plan{
		Inputs:      slices.Concat(m.Inputs, m.ShardInputs(), m.LookupRows()),
		Fixed:       m.Kept(),
		FixedValues: r.kept,
		Loss:        m.Loss,
	}
	if train {
		p.Differentiate = slices.Concat(m.Variables, m.LookupRows())
		for _, s := range m.States {
			p.Outputs = append(p.Outputs, s.Batch)
		}
	}
	for _, name := range r.metrics {
		p.Outputs = append(p.Outputs, m.Metrics[name])
	}
	for _, name := range r.fetches {
		p.Outputs = append(p.Outputs, m.Fetches[name])
	}
	for _, name := range r.carried {
		p.Outputs = append(p.Outputs, m.Carried[name])
	}
	return p
}

// locate notes the memory of the program's inputs and gradients.
func (r *Replica) locate(train bool) {
	for i := range r.model.Inputs {
		r.inputs = append(r.inputs, r.program.Input(i))
	}
	next := len(r.inputs)
	for i, n := range r.model.Shard {
		if n != nil {
			r.shard[i] = r.program.Input(next)
			next++
		}
	}
	for i, l := range r.model.Lookups {
		input := r.program.Input(next + i)
		rows, _ := RowMajor(input) // the program has made it so
		if l.At == len(r.places) {
			r.places = append(r.places, nil)
		}
		r.places[l.At] = append(r.places[l.At], Place{l.Feed(), input.Shape()[0], rows, l.Index != ""})
	}
	if !train {
		return
	}
	r.gradients = make([][]byte, len(r.model.Variables))
	for _, places := range r.places {
		size := 0
		for _, p := range places {
			size += len(p.Rows)
		}
		rest := make([]byte, size)
		r.tables = append(r.tables, rest)
		for _, p := range places {
			n := len(p.Rows)
			r.gradients, rest = append(r.gradients, rest[:n:n]), rest[n:]
		}
	}
}

// OnCPU names the operations for which the replica's GPU has no kernel.
func (r *Replica) OnCPU() []string { return r.program.OnCPU() }

// Places are the lookups of a table.
func (r *Replica) Places(table int) []Place { return r.places[table] }

// TableGradient is the gradient of all rows that were looked up of a table in the
// last training run, in the order of its places.
func (r *Replica) TableGradient(table int) []byte { return r.tables[table] }

// SetGradient makes the next run write the gradient of a variable to memory.
func (r *Replica) SetGradient(variable int, memory []byte) { r.gradients[variable] = memory }

// Gradient is what the last run wrote of gradient i: of a variable, or of a
// lookup, which are numbered from the number of variables on.
func (r *Replica) Gradient(i int) []byte { return r.gradients[i] }

// Gradients is the number of gradients.
func (r *Replica) Gradients() int { return len(r.gradients) }

// Run computes one virtual worker. It returns the loss, and then the metrics in
// the order of their names. ready is called when gradient i is complete and
// nothing reads the variable any more in this run.
func (r *Replica) Run(call operation.Call, ready func(i int)) ([]float64, error) {
	r.setShard(call)
	loss, err := r.program.Run(call, r.gradients, ready)
	if err != nil {
		return nil, fmt.Errorf("compute the model: %w", err)
	}
	sums := []float64{loss}
	for i, name := range r.metrics {
		x, err := number(r.program.Output(r.states() + i))
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", name, err)
		}
		sums = append(sums, x)
	}
	return sums, nil
}

// setShard sets the inputs of Model.Shard. An evaluation is the whole of its data:
// shard 0 of 1.
func (r *Replica) setShard(call operation.Call) {
	values := [2]int{call.VirtualWorker, call.VirtualWorkers}
	if !call.Train {
		values = [2]int{0, 1}
	}
	for i, x := range r.shard {
		if x == nil {
			continue
		}
		switch x := x.Data().(type) {
		case []float32:
			x[0] = float32(values[i])
		case []float64:
			x[0] = float64(values[i])
		case []int64:
			x[0] = int64(values[i])
		}
	}
}

// states is how many outputs are batch values of states.
func (r *Replica) states() int {
	if r.gradients == nil {
		return 0
	}
	return len(r.model.States)
}

// State copies what the batch of the last training run says of a state.
func (r *Replica) State(i int, to []byte) error {
	if err := memory.Copy(to, r.program.Output(i)); err != nil {
		return fmt.Errorf("state %q: %w", r.model.States[i].Variable.Name(), err)
	}
	return nil
}

// Fetch appends copies of the last run's fetches to those in into, by name.
func (r *Replica) Fetch(into map[string][]gorgonia.Value) error {
	at := r.states() + len(r.metrics)
	for i, name := range r.fetches {
		v, err := gorgonia.CloneValue(r.program.Output(at + i))
		if err != nil {
			return fmt.Errorf("fetch %q: %w", name, err)
		}
		into[name] = append(into[name], v)
	}
	return nil
}

// Carry copies what the last training run leaves to the next for the i-th of the
// carried inputs, in the order of their names.
func (r *Replica) Carry(i int, to []byte) error {
	if err := memory.Copy(to, r.program.Output(r.states()+len(r.metrics)+len(r.fetches)+i)); err != nil {
		return fmt.Errorf("carry %q: %w", r.carried[i], err)
	}
	return nil
}

// Named gives metrics, in the order of their names, these names.
func (r *Replica) Named(metrics []float64) map[string]float64 {
	if len(r.metrics) == 0 {
		return nil
	}
	named := map[string]float64{}
	for i, name := range r.metrics {
		named[name] = metrics[i]
	}
	return named
}

// NameOf describes what gradient i is of.
func (r *Replica) NameOf(i int) string {
	if n := len(r.model.Variables); i >= n {
		l := r.model.Lookups[i-n]
		return fmt.Sprintf("%q (rows of %q)", l.Feed(), l.Table)
	}
	return fmt.Sprintf("%q", r.model.Variables[i].Name())
}

// dtype is the type of gradient i.
func (r *Replica) dtype(i int) tensor.Dtype {
	if n := len(r.model.Variables); i >= n {
		return r.model.Lookups[i-n].Rows.Dtype()
	}
	return r.model.Variables[i].Dtype()
}

// Check refuses a feed that does not fit so many virtual workers. The indices of
// lookups are for package embedding to check.
func (r *Replica) Check(feed map[string]tensor.Tensor, vws int) error {
	var known []string
	for _, n := range r.model.Inputs {
		known = append(known, n.Name())
	}
	for _, l := range r.model.Lookups {
		known = append(known, l.Feed())
	}
	for _, name := range slices.Sorted(maps.Keys(feed)) { // first: a wrong name also leaves an input without a value
		if !slices.Contains(known, name) {
			return fmt.Errorf("the model has no input %q: its inputs are %q", name, known)
		}
	}
	for i, n := range r.model.Inputs {
		from := feed[n.Name()]
		if from == nil {
			return fmt.Errorf("input %q is not fed", n.Name())
		}
		if err := fits(r.inputs[i], from, vws); err != nil {
			return fmt.Errorf("input %q: %w", n.Name(), err)
		}
	}
	return nil
}

// fits checks that from holds the rows of so many virtual workers, or one value
// for all of them.
func fits(to *tensor.Dense, from tensor.Tensor, vws int) error {
	if from.Dtype() != to.Dtype() {
		return fmt.Errorf("type %v, the model wants %v", from.Dtype(), to.Dtype())
	}
	if from.DataOrder().IsColMajor() {
		return fmt.Errorf("column-major, the model wants row-major")
	}
	want := to.Shape().Clone()
	if from.Shape().Eq(want) {
		return nil
	}
	if len(want) > 0 {
		want[0] *= vws
	}
	if !from.Shape().Eq(want) && !oneRow(from.Shape(), want) {
		return fmt.Errorf("shape %v, the model wants %v", from.Shape(), want)
	}
	return nil
}

// oneRow reports whether a shape is that of the only row that is wanted, without the
// number of rows: tensor.New gives a slice of one number the shape ().
func oneRow(got, want tensor.Shape) bool {
	return len(want) > 0 && want[0] == 1 && (slices.Equal(got, want[1:]) || memory.Elements(got) == 1 && memory.Elements(want) == 1)
}

// Load copies one virtual worker's part of a checked feed to the inputs.
func (r *Replica) Load(feed map[string]tensor.Tensor, vw int) error {
	for i, n := range r.model.Inputs {
		if err := copyPart(r.inputs[i], feed[n.Name()], vw); err != nil {
			return fmt.Errorf("input %q: %w", n.Name(), err)
		}
	}
	return nil
}

// copyPart copies the i-th equal part of from's rows, or all of from if it has
// the shape of to.
func copyPart(to *tensor.Dense, from tensor.Tensor, i int) error {
	if from.Shape().Eq(to.Shape()) {
		return tensor.Copy(to, from)
	}
	dense, ok := from.(*tensor.Dense)
	if !ok {
		return fmt.Errorf("cannot read a %T", from)
	}
	if dense.RequiresIterator() {
		whole, ok := dense.Materialize().(*tensor.Dense)
		if !ok {
			return fmt.Errorf("cannot read a view of shape %v", dense.Shape())
		}
		dense = whole
	}
	into, _ := memory.Raw(to) // the program has made it row-major
	rows, ok := memory.Raw(dense)
	if !ok {
		return fmt.Errorf("cannot read a tensor of %v", dense.Dtype())
	}
	copy(into, rows[i*len(into):])
	return nil
}
