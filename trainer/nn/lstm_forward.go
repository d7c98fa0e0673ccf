package nn

import "gorgonia.org/gorgonia"

// traces are the pieces of a trace, each (batch*steps, width of its own).
type traces[T float] struct {
	gates  []T // 4*units, after their functions
	cell   []T // units
	tanh   []T // units: of the cell
	hidden []T // units: output gate times tanh
	out    []T // width: what the layer gives, hidden where it is not projected
}

func cutTrace[T float](s lstm, x []T) (t traces[T]) {
	n := s.rows() * s.units
	t.gates, x = x[:4*n], x[4*n:]
	t.cell, x = x[:n], x[n:]
	t.tanh, x = x[:n], x[n:]
	t.hidden, x = x[:n], x[n:]
	if t.out = t.hidden; s.projected {
		t.out = x
	}
	return t
}

// weights are a layer's inputs.
type weights[T float] struct {
	x, input, state, bias, projection []T
	first, cell                       block[T]
}

// cutInputs finds the inputs. zeros stands for the first state where there is
// none.
func cutInputs[T float](s lstm, in []gorgonia.Value, zeros []T) weights[T] {
	w := weights[T]{x: data[T](in[0]), input: data[T](in[1]), state: data[T](in[2]), bias: data[T](in[3]),
		first: block[T]{data: zeros}, cell: block[T]{data: zeros}}
	in = in[4:]
	if s.projected {
		w.projection, in = data[T](in[0]), in[1:]
	}
	if s.started {
		w.first, w.cell = whole(data[T](in[0]), s.width), whole(data[T](in[1]), s.units)
	}
	return w
}

// lstmTrace is the forward pass.
func lstmTrace[T float](s lstm) kernel {
	zeros := make([]T, s.units)
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		t, w := cutTrace(s, data[T](out)), cutInputs(s, in, zeros)
		fill(t.gates, w.bias)
		mul(s.rows(), 4*s.units, s.in, whole(w.x, s.in), whole(w.input, 4*s.units), 1, whole(t.gates, 4*s.units))
		cell := w.cell
		for at := range s.steps {
			gates := step(t.gates, at, s.steps, 4*s.units)
			if at > 0 {
				before := step(t.out, at-1, s.steps, s.width)
				mul(s.batch, 4*s.units, s.width, before, whole(w.state, 4*s.units), 1, gates)
			} else if s.started {
				mul(s.batch, 4*s.units, s.width, w.first, whole(w.state, 4*s.units), 1, gates)
			}
			for i := range s.batch {
				lstmStep(s, t, i*s.steps+at, cell.row(i, s.units))
			}
			if s.projected {
				hidden, to := step(t.hidden, at, s.steps, s.units), step(t.out, at, s.steps, s.width)
				mul(s.batch, s.width, s.units, hidden, whole(w.projection, s.width), 0, to)
			}
			cell = step(t.cell, at, s.steps, s.units)
		}
		return nil
	}
}

// lstmStep makes one row of a trace from its gates and the cell before.
func lstmStep[T float](s lstm, t traces[T], row int, before []T) {
	n := s.units
	gates, cell, tanh, hidden := t.gates[row*4*n:][:4*n], t.cell[row*n:][:n], t.tanh[row*n:][:n], t.hidden[row*n:][:n]
	if s.forget != 0 {
		for k := range cell {
			gates[n+k] += T(s.forget)
		}
	}
	sigmoids(gates[:2*n])
	tanhs(gates[2*n:3*n], gates[2*n:3*n])
	sigmoids(gates[3*n:])
	input, forget, candidate, output := gates[:n], gates[n:2*n], gates[2*n:3*n], gates[3*n:]
	for k := range cell {
		cell[k] = T(forget[k]*before[k]) + T(input[k]*candidate[k])
	}
	tanhs(tanh, cell)
	for k := range hidden {
		hidden[k] = output[k] * tanh[k]
	}
}

// lstmGive copies what the layer gives out of its trace, the last input.
func lstmGive[T float](s lstm) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		t, to := cutTrace(s, data[T](in[len(in)-1])), data[T](out)
		to = to[copy(to, t.out[:s.rows()*s.width]):]
		last := step(t.out, s.steps-1, s.steps, s.width)
		for i := range s.batch {
			to = to[copy(to, last.row(i, s.width)):]
		}
		last = step(t.cell, s.steps-1, s.steps, s.units)
		for i := range s.batch {
			to = to[copy(to, last.row(i, s.units)):]
		}
		return nil
	}
}
