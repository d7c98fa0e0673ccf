package client

import (
	"errors"
	"sync"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/policy"
)

// apart is the state of a worker in a mode in which workers take steps alone
// between exchanges. In such a step a worker uses its own gradients only. A nil
// apart exchanges gradients in every step.
type apart struct {
	client *Client
	worker policy.Worker // rules of the mode

	rate  float64 // of the current step
	joins bool    // the worker exchanges gradients in the current step
	steps uint64  // number of steps taken alone

	mu   sync.Mutex
	sums [][]aggregate.Sum // by variable and part, of the current step
}

func newApart(c *Client) (*apart, error) {
	h := c.holders
	w := h.d.Sync.NewWorker()
	if w == nil {
		return nil, nil
	}
	a := &apart{client: c, worker: w, sums: make([][]aggregate.Sum, len(h.d.Variables))}
	for i, v := range h.d.Variables {
		if v.Sparse != nil || h.relay != nil {
			return nil, errors.New("steps of a worker's own need dense variables, and no local aggregation")
		}
		a.sums[i] = make([]aggregate.Sum, len(c.parts))
	}
	return a, nil
}

// alone returns the number of steps taken alone.
func (a *apart) alone() uint64 {
	if a == nil {
		return 0
	}
	return a.steps
}

// begin begins a step, and reports whether the worker exchanges gradients in
// it.
func (a *apart) begin(rate float64) bool {
	if a == nil {
		return true
	}
	a.rate, a.joins = rate, a.worker.Exchanges(a.client.Step())
	return a.joins
}

// put keeps a variable's sum of a part. It returns false if the caller must
// send the sum unchanged.
func (a *apart) put(variable, part int, sum aggregate.Sum) bool {
	if a == nil || variable == a.client.holders.d.LossIndex() {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sums[variable][part] = sum
	return true
}

// finish applies the worker's own gradients to the values. In a step with an
// exchange, finish sends the sums that the mode computes. Otherwise alone is
// true: the step is over, and the loss is the worker's own.
func (a *apart) finish(losses [][]float64) (o Outcome, alone bool) {
	if a == nil {
		return o, false
	}
	c := a.client
	present := c.present()
	for variable, sums := range a.sums {
		if total := aggregate.Add(sums); total != nil {
			out := a.worker.Take(variable, c.Step(), a.rate, total.Encode(nil), c.holders.memory.values[variable], present)
			for part, sum := range sums {
				if a.joins && sum != nil {
					c.forward(variable, part, aggregate.Times(sum, out, c.presentIn(part)))
				}
			}
		}
		clear(sums)
	}
	if a.joins {
		return o, false
	}
	o = Outcome{Step: c.Step(), VirtualWorkers: present, Metrics: make([]float64, c.holders.d.Metrics)}
	for i, numbers := range losses {
		if c.absent[i] {
			continue
		}
		o.Loss += numbers[0] / float64(present)
		for m, x := range numbers[1:] {
			o.Metrics[m] += x / float64(present)
		}
	}
	a.steps++
	return o, true
}
