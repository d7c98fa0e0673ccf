// Package replica computes a model on one worker. A [Replica] is one compiled
// copy of the model's graph, used by one goroutine at a time. A [Group] is all
// replicas of one worker.
//
//	g, err := replica.NewGroup(build, rows, n, nil)     // n graphs, one set of variables
//	err = g.Each(ctx, virtualWorkers, func(r *replica.Replica, index, vw int) error {
//		... r.Load(feed, vw), r.SetGradient(i, memory) ...
//		sums, err := r.Run(call, ready)             // ready(i): gradient i is complete
//		...
//	})
//
// Gorgonia's operations have state, so replicas do not share a graph. They
// share the memory of the variables, which the caller changes between steps.
//
// # What it does not do
//
// Package replica sends no gradients and updates no variables. Rows of
// embedding tables are only inputs to it; package embedding manages the
// tables.
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

// Replica is one compiled copy of the model's graph. It may be used by one
// goroutine at a time.
type Replica struct {
	model   Model
	program *executor.Program
	kept    []gorgonia.Value // values of the variables in Model.Kept, shared by all replicas of the Group
	inputs  []*tensor.Dense  // in the order of Model.Inputs: the tensor that the program reads
	shard   [2]*tensor.Dense // in the order of Model.Shard: the tensor that the program reads; nil if the model lacks this input
	places  [][]Place        // indexed by embedding table: inputs that receive the rows of the table's lookups
	// gradients is the memory to which the program writes gradients: those of
	// the variables, then those of the lookups. The caller sets a variable's
	// memory with SetGradient before every run. The memory of lookups belongs
	// to the replica. gradients is nil if the replica does not train.
	gradients [][]byte
	tables    [][]byte // indexed by embedding table: gradients of all lookups of the table, one after the other
	metrics   []string // names of Model.Metrics, sorted
	fetches   []string // names of Model.Fetches, sorted
	carried   []string // names of Model.Carried, sorted; empty if the replica does not train
}

// Place is the input that receives the rows of one lookup of an embedding
// table.
type Place struct {
	Name string // name under which the caller feeds the indices
	N    int    // number of indices for one virtual worker
	Rows []byte // memory of the input, N rows
	// Whole is true if the user's graph had the table as a variable and the
	// indices as an input. As with any input, the caller may then feed only N
	// indices for several virtual workers, which all use these N indices.
	Whole bool
}

// Least returns the smallest number of indices that the caller may feed for
// vws virtual workers.
func (p Place) Least(vws int) int {
	if p.Whole {
		return p.N
	}
	return vws * p.N
}

// compile returns a replica of model m. values are the values of the variables
// in m.Kept; if values is nil, compile allocates them and copies the initial
// values of m's nodes. The replica computes gradients if train is true. The
// parameter on is the GPU that computes; nil means the CPU.
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

// plan returns what the executor computes in each run. Only a training replica
// computes gradients, states and carried values.
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

// locate keeps references to the memory of the program's inputs, and allocates
// the memory of the lookups' gradients.
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
		rows, _ := RowMajor(input) // always row-major, because the program allocated the input
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

// OnCPU returns the names of the operations that run on the CPU because they
// have no GPU kernel.
func (r *Replica) OnCPU() []string { return r.program.OnCPU() }

// Places returns, for each lookup in an embedding table, the input that
// receives the rows.
func (r *Replica) Places(table int) []Place { return r.places[table] }

// TableGradient returns the gradients of all rows of a table that the last
// training run looked up, in the order of Places.
func (r *Replica) TableGradient(table int) []byte { return r.tables[table] }

// SetGradient sets the memory to which the next run writes the gradient of a
// variable.
func (r *Replica) SetGradient(variable int, memory []byte) { r.gradients[variable] = memory }

// Gradient returns gradient i of the last run. The gradients of the variables
// come first, then those of the embedding lookups.
func (r *Replica) Gradient(i int) []byte { return r.gradients[i] }

// Gradients returns the number of gradients, of variables and lookups
// together.
func (r *Replica) Gradients() int { return len(r.gradients) }

// Run computes the batch of one virtual worker. It returns the loss, followed
// by the metrics in the order of their names. It calls ready(i) when gradient
// i is complete and this run no longer reads variable i.
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

// setShard sets the inputs of Model.Shard. An evaluation always computes the
// whole batch that it is given, so it is virtual worker 0 of 1.
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

// states returns the number of program outputs that update the running
// averages in Model.States. These outputs come before all others.
func (r *Replica) states() int {
	if r.gradients == nil {
		return 0
	}
	return len(r.model.States)
}

// State fills a slice (to) with the batch value of running average i
// (Model.States[i].Batch), which the last training run computed.
func (r *Replica) State(i int, to []byte) error {
	if err := memory.Copy(to, r.program.Output(i)); err != nil {
		return fmt.Errorf("state %q: %w", r.model.States[i].Variable.Name(), err)
	}
	return nil
}

// Fetch appends copies of the last run's fetched values to the slices in the
// map into, whose keys are the names of the fetches.
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

// Carry fills a slice (to) with the value of a carried input for the next
// step, which the last training run computed. i is the input's index in the
// sorted list of the names of carried inputs.
func (r *Replica) Carry(i int, to []byte) error {
	if err := memory.Copy(to, r.program.Output(r.states()+len(r.metrics)+len(r.fetches)+i)); err != nil {
		return fmt.Errorf("carry %q: %w", r.carried[i], err)
	}
	return nil
}

// Named returns the metrics as a map from name to value. metrics must be in
// the order of the names, as Run returns them.
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

// NameOf returns the name of the variable or lookup to which gradient i
// belongs.
func (r *Replica) NameOf(i int) string {
	if n := len(r.model.Variables); i >= n {
		l := r.model.Lookups[i-n]
		return fmt.Sprintf("%q (rows of %q)", l.Feed(), l.Table)
	}
	return fmt.Sprintf("%q", r.model.Variables[i].Name())
}

// dtype returns the element type of gradient i.
func (r *Replica) dtype(i int) tensor.Dtype {
	if n := len(r.model.Variables); i >= n {
		return r.model.Lookups[i-n].Rows.Dtype()
	}
	return r.model.Variables[i].Dtype()
}

// Check returns an error if the feed does not fit the model's inputs for vws
// virtual workers. Package embedding checks the indices of lookups.
func (r *Replica) Check(feed map[string]tensor.Tensor, vws int) error {
	var known []string
	for _, n := range r.model.Inputs {
		known = append(known, n.Name())
	}
	for _, l := range r.model.Lookups {
		known = append(known, l.Feed())
	}
	for _, name := range slices.Sorted(maps.Keys(feed)) { // check names first: a misspelt name also leaves an input without a value, and that error would hide the cause
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

// fits returns an error unless a value (from) has the shape of an input (to),
// or that of vws such inputs one after the other.
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

// oneRow reports whether got is the shape want without its first dimension,
// which counts rows and is 1. tensor.New, for example, gives a slice of one
// number the shape ().
func oneRow(got, want tensor.Shape) bool {
	return len(want) > 0 && want[0] == 1 && (slices.Equal(got, want[1:]) || memory.Elements(got) == 1 && memory.Elements(want) == 1)
}

// Load copies the rows of virtual worker vw from a feed to the program's
// inputs. Check must have accepted the feed.
func (r *Replica) Load(feed map[string]tensor.Tensor, vw int) error {
	for i, n := range r.model.Inputs {
		if err := copyPart(r.inputs[i], feed[n.Name()], vw); err != nil {
			return fmt.Errorf("input %q: %w", n.Name(), err)
		}
	}
	return nil
}

// copyPart divides the rows of a value (from) into parts of the size of an
// input (to), and copies the i-th part to the input. If the value has the
// shape of the input, copyPart copies the whole value.
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
	into, _ := memory.Raw(to) // always row-major, because the program allocated the input
	rows, ok := memory.Raw(dense)
	if !ok {
		return fmt.Errorf("cannot read a tensor of %v", dense.Dtype())
	}
	copy(into, rows[i*len(into):])
	return nil
}
