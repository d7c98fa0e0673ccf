package main

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/plx-run/plx/trainer/executor"
	"github.com/plx-run/plx/trainer/nn"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// compiled is a model in float64 on one device. The looked-up rows are an
// input of it.
type compiled struct {
	*executor.Program
	classifier
	names     []string
	values    [][]float64 // w, b, the rows
	gradients [][]float64
	bytes     [][]byte
}

func compile(t *testing.T, c classifier, batch int) *compiled {
	t.Helper()
	g := gorgonia.NewGraph()
	m, err := nn.BuildOf(tensor.Float64, c.seed, c.build)(g, batch)
	if err != nil {
		t.Fatal(err)
	}
	words := g.ByName("word")[0]
	p := &compiled{classifier: c, names: []string{"w", "b", "words"}}
	plan := executor.Plan{Inputs: append(slices.Clone(m.Inputs), words), Fixed: m.Variables, Loss: m.Loss,
		Differentiate: append(slices.Clone(m.Variables), words), Outputs: gorgonia.Nodes{m.Metrics["accuracy"]}}
	for _, v := range m.Variables {
		plan.FixedValues = append(plan.FixedValues, v.Value())
		p.values = append(p.values, v.Value().Data().([]float64))
	}
	if p.Program, err = executor.Compile(g, plan); err != nil {
		t.Fatal(err)
	}
	p.values = append(p.values, p.Input(1).Data().([]float64))
	for i, values := range p.values {
		for k := range values {
			values[k] += 0.3 * math.Sin(float64(7*i+k*k+1))
		}
		gradient := make([]float64, len(values))
		p.gradients = append(p.gradients, gradient)
		p.bytes = append(p.bytes, unsafe.Slice((*byte)(unsafe.Pointer(&gradient[0])), 8*len(gradient)))
	}
	subjects := p.Input(0).Data().([]float64)
	for i := range subjects {
		subjects[i] = float64((i*7 + 1) % c.subjects)
	}
	return p
}

// The loss and the accuracy against a plain computation, and every element of
// every gradient, those of the words' rows too, against central differences.
func TestGradient(t *testing.T) {
	for _, size := range []struct{ length, width, subjects, batch int }{{4, 3, 5, 6}, {1, 1, 2, 1}, {7, 2, 3, 2}} {
		t.Run(fmt.Sprintf("%+v", size), func(t *testing.T) {
			l := language{vocabulary: 20, length: size.length, subjects: size.subjects}
			p := compile(t, classifier{language: l, width: size.width}, size.batch)
			loss, err := p.Run(operation.Call{Train: true}, p.bytes, func(int) {})
			if err != nil {
				t.Fatal(err)
			}
			want, right := p.twin()
			if math.Abs(loss-want) > 1e-12*(1+want) {
				t.Errorf("loss is %v, want %v", loss, want)
			}
			if got := p.Output(0).Data().(float64); math.Abs(got-right) > 1e-12 {
				t.Errorf("accuracy is %v, want %v", got, right)
			}
			for i, values := range p.values {
				for k := range values {
					if got, want := p.gradients[i][k], p.difference(&values[k]); math.Abs(got-want) > 1e-8*(1+math.Abs(want)) {
						t.Errorf("%s[%d]: gradient is %v, want %v", p.names[i], k, got, want)
					}
				}
			}
		})
	}
}

func (p *compiled) difference(x *float64) float64 {
	const h = 1e-6
	at := *x
	*x = at + h
	up, _ := p.twin()
	*x = at - h
	down, _ := p.twin()
	*x = at
	return (up - down) / (2 * h)
}

// twin computes the loss and the accuracy sentence by sentence.
func (p *compiled) twin() (loss, accuracy float64) {
	w, b, words := p.values[0], p.values[1], p.values[2]
	subjects := p.Input(0).Data().([]float64)
	for i, subject := range subjects {
		logits := slices.Clone(b)
		for at := range p.length {
			for e, v := range words[(i*p.length+at)*p.width:][:p.width] {
				for k := range logits {
					logits[k] += v / float64(p.length) * w[e*p.subjects+k]
				}
			}
		}
		sum, best := 0.0, 0
		for k, v := range logits {
			sum += math.Exp(v)
			if v > logits[best] {
				best = k
			}
		}
		loss += (math.Log(sum) - logits[int(subject)]) / float64(len(subjects))
		if best == int(subject) {
			accuracy += 1 / float64(len(subjects))
		}
	}
	return loss, accuracy
}
