package main

import (
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/executor"
	"github.com/plx-run/plx/trainer/nn"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// compiled is a model in float64 on one device.
type compiled struct {
	*executor.Program
	model     trainer.Model
	values    [][]float64 // of the variables
	gradients [][]float64
	bytes     [][]byte
}

func compile(t *testing.T, in, hidden, batch int) *compiled {
	t.Helper()
	g := gorgonia.NewGraph()
	m, err := nn.BuildOf(tensor.Float64, 1, model(in, hidden))(g, batch)
	if err != nil {
		t.Fatal(err)
	}
	c := &compiled{model: m}
	plan := executor.Plan{Inputs: m.Inputs, Fixed: m.Variables, Loss: m.Loss, Differentiate: m.Variables,
		Outputs: gorgonia.Nodes{m.Metrics["accuracy"]}}
	for i, v := range m.Variables {
		values := v.Value().Data().([]float64)
		for k := range values { // biases start at 0, which would hide mistakes
			values[k] += 0.1 * math.Sin(float64(7*i+k))
		}
		gradient := make([]float64, len(values))
		plan.FixedValues = append(plan.FixedValues, v.Value())
		c.values, c.gradients = append(c.values, values), append(c.gradients, gradient)
		c.bytes = append(c.bytes, unsafe.Slice((*byte)(unsafe.Pointer(&gradient[0])), 8*len(gradient)))
	}
	if c.Program, err = executor.Compile(g, plan); err != nil {
		t.Fatal(err)
	}
	x, y := c.Input(0).Data().([]float64), c.Input(1).Data().([]float64)
	for i := range x {
		x[i] = math.Sin(float64(i*i + 1))
	}
	for i := range batch {
		y[i*classes+(i*7+2)%classes] = 1
	}
	return c
}

func (c *compiled) loss(t *testing.T) float64 {
	t.Helper()
	loss, err := c.Run(operation.Call{Train: true}, c.bytes, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	return loss
}

// The loss and the accuracy against a plain computation, and every element of
// every gradient against central differences of that loss.
func TestGradient(t *testing.T) {
	for _, size := range []struct{ in, hidden, batch int }{{6, 5, 4}, {3, 1, 1}, {1, 4, 3}} {
		t.Run(fmt.Sprintf("%+v", size), func(t *testing.T) {
			c := compile(t, size.in, size.hidden, size.batch)
			want, right := c.twin()
			if got := c.loss(t); math.Abs(got-want) > 1e-12*(1+want) {
				t.Errorf("loss is %v, want %v", got, want)
			}
			if got := c.Output(0).Data().(float64); got != right {
				t.Errorf("accuracy is %v, want %v", got, right)
			}
			for i, values := range c.values {
				for k, v := range values {
					const h = 1e-6
					values[k] = v + h
					up, _ := c.twin()
					values[k] = v - h
					down, _ := c.twin()
					values[k] = v
					if got, want := c.gradients[i][k], (up-down)/(2*h); math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
						t.Errorf("%s[%d]: gradient is %v, want %v", c.model.Variables[i].Name(), k, got, want)
					}
				}
			}
		})
	}
}

// twin computes the loss and the accuracy row by row.
func (c *compiled) twin() (loss, accuracy float64) {
	x, y := c.Input(0).Data().([]float64), c.Input(1).Data().([]float64)
	batch := len(y) / classes
	in := len(x) / batch
	for r := range batch {
		h := layer(x[r*in:(r+1)*in], c.values[0], c.values[1])
		for i, v := range h {
			h[i] = math.Max(v, 0)
		}
		logits := layer(h, c.values[2], c.values[3])
		sum, best, label := 0.0, 0, 0
		for k, v := range logits {
			sum += math.Exp(v)
			if v > logits[best] {
				best = k
			}
			if y[r*classes+k] == 1 {
				label = k
			}
		}
		loss += math.Log(sum) - logits[label]
		if best == label {
			accuracy += 1 / float64(batch)
		}
	}
	return loss, accuracy
}

func layer(x, w, b []float64) []float64 {
	out := append([]float64(nil), b...)
	for i, v := range x {
		for k := range out {
			out[k] += v * w[i*len(out)+k]
		}
	}
	return out
}

// The example's own sizes build, and the first loss is that of guessing.
func TestFirstLoss(t *testing.T) {
	c := compile(t, pixels, hidden, 20)
	if loss := c.loss(t) / 20; loss < 1.5 || loss > 6 {
		t.Errorf("the first loss is %v of a row, want about log(10)", loss)
	}
	if c.model.LossKind != trainer.Sum {
		t.Errorf("the loss is a %v", c.model.LossKind)
	}
}
