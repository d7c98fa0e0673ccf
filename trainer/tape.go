package trainer

import (
	"fmt"
	"sync"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// executor computes one graph. Variables and gradients lie in memory that the
// executor was given or gave out when it was made.
type executor interface {
	// feed copies what the next run computes from. A feed that does not fit
	// is refused.
	feed(feed Feed) error
	// run computes. A training executor has then written the gradients of
	// the variables; the fetched values are the caller's.
	run() (Result, error)
}

// tape runs a graph on Gorgonia's tape machine.
//
// That machine gives registers to other values as soon as it can, so only
// what a read operation copied out at its moment can be trusted after a run:
// the loss, the gradients and the fetches are all read that way.
type tape struct {
	model   Model
	machine gorgonia.VM
	inputs  map[string]*tensor.Dense
	loss    gorgonia.Value
	fetches map[string]*gorgonia.Value
	reads   []*gradientRead
}

// building guards Gorgonia's construction of graphs, which counts and pools
// in variables of its package.
var building sync.Mutex

// newTape builds a graph. values are bound to the variables in order; nil
// makes them out of what Build bound. Gradients are computed where train is
// set.
func newTape(build Build, batch int, values []gorgonia.Value, train bool) (*tape, []gorgonia.Value, error) {
	building.Lock()
	defer building.Unlock()
	g := gorgonia.NewGraph()
	model, err := build(g, batch)
	if err != nil {
		return nil, nil, fmt.Errorf("build the model: %w", err)
	}
	if err := model.check(); err != nil {
		return nil, nil, err
	}
	t := &tape{model: model}
	if values, err = t.bindVariables(values); err != nil {
		return nil, nil, err
	}
	if err := t.bindInputs(); err != nil {
		return nil, nil, err
	}
	if err := t.compile(g, train); err != nil {
		return nil, nil, err
	}
	return t, values, nil
}

// bindVariables gives every variable memory of plx's own: what Build bound
// may be shared with another graph.
func (t *tape) bindVariables(values []gorgonia.Value) ([]gorgonia.Value, error) {
	fresh := values == nil
	if !fresh && len(values) != len(t.model.Variables) {
		return nil, fmt.Errorf("Build made %d variables, the first time %d", len(t.model.Variables), len(values))
	}
	for i, n := range t.model.Variables {
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
		if err := gorgonia.Let(n, values[i]); err != nil {
			return nil, fmt.Errorf("variable %q: %w", n.Name(), err)
		}
	}
	return values, nil
}

// bindInputs gives every input memory that the feeds are copied to.
func (t *tape) bindInputs() error {
	t.inputs = map[string]*tensor.Dense{}
	for _, n := range t.model.Inputs {
		if n.IsScalar() {
			return fmt.Errorf("input %q is a scalar: give it the shape (1)", n.Name())
		}
		v := tensor.New(tensor.Of(n.Dtype()), tensor.WithShape(n.Shape()...))
		if err := gorgonia.Let(n, v); err != nil {
			return fmt.Errorf("input %q: %w", n.Name(), err)
		}
		t.inputs[n.Name()] = v
	}
	return nil
}

// compile adds the gradients and the reads and makes the machine. Gorgonia
// panics on what it cannot compile.
func (t *tape) compile(g *gorgonia.ExprGraph, train bool) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("compile the model: %v", p)
		}
	}()
	if train {
		gradients, err := gorgonia.Grad(t.model.Loss, t.model.Variables...)
		if err != nil {
			return fmt.Errorf("differentiate the loss: %w", err)
		}
		for i, n := range t.model.Variables {
			read, err := newGradientRead(n, gradients[i])
			if err != nil {
				return err
			}
			t.reads = append(t.reads, read)
		}
	}
	gorgonia.Read(t.model.Loss, &t.loss)
	t.fetches = map[string]*gorgonia.Value{}
	for name, n := range t.model.Fetches {
		t.fetches[name] = new(gorgonia.Value)
		gorgonia.Read(n, t.fetches[name])
	}
	if err := checkMerges(g); err != nil {
		return err
	}
	options := []gorgonia.VMOpt{}
	if !train {
		options = append(options, gorgonia.EvalMode())
	}
	t.machine = gorgonia.NewTapeMachine(g, options...)
	return nil
}

// checkMerges refuses a graph in which Gorgonia's compiler would take two
// vertices for one: it compares 32-bit hashes only.
func checkMerges(g *gorgonia.ExprGraph) error {
	seen := map[uint32]*gorgonia.Node{}
	for _, n := range g.AllNodes() {
		other, ok := seen[n.Hashcode()]
		if ok && other != n {
			return fmt.Errorf("gorgonia would compute %v and %v as one, their hashes are equal: rename a variable", other, n)
		}
		seen[n.Hashcode()] = n
	}
	return nil
}

func (t *tape) run() (Result, error) {
	t.loss = nil
	for _, v := range t.fetches {
		*v = nil // the last run's is the caller's now
	}
	defer t.machine.Reset()
	if err := t.machine.RunAll(); err != nil {
		return Result{}, fmt.Errorf("compute the model: %w", err)
	}
	for _, r := range t.reads {
		if err := r.finish(); err != nil {
			return Result{}, err
		}
	}
	loss, err := number(t.loss)
	result := Result{Loss: loss}
	if len(t.fetches) > 0 {
		result.Fetches = make(map[string]gorgonia.Value, len(t.fetches))
	}
	for name, v := range t.fetches {
		result.Fetches[name] = *v
	}
	return result, err
}

// gradientRead copies one gradient out of the machine.
type gradientRead struct {
	name   string
	fixed  gorgonia.Value // where the gradient belongs
	memory []byte         // fixed's
	into   gorgonia.Value // what the machine writes to: fixed, or nil to get a clone
	direct bool
}

func newGradientRead(variable, gradient *gorgonia.Node) (*gradientRead, error) {
	r := &gradientRead{name: variable.Name()}
	var err error
	if r.fixed, r.memory, err = newLike(variable); err != nil {
		return nil, fmt.Errorf("gradient of %w", err)
	}
	gorgonia.Read(gradient, &r.into)
	return r, nil
}

// finish brings a gradient that did not come in the order of its variable to
// where it belongs. The first run shows how they come: into was nil, so the
// machine made a clone. Where that lies as its variable does, later runs copy
// straight to the right place.
func (r *gradientRead) finish() error {
	if r.direct {
		return nil
	}
	if err := copyInto(r.memory, r.into); err != nil {
		return fmt.Errorf("gradient of %q: %w", r.name, err)
	}
	_, plain := rowMajor(r.into)
	a, b := fmt.Sprintf("%T", r.into), fmt.Sprintf("%T", r.fixed)
	if r.direct = plain && a == b; r.direct {
		r.into = r.fixed
	} else {
		r.into = nil
	}
	return nil
}
