package client

import (
	"errors"
	"sync"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/policy"
)

// apart is a worker's part in a mode in which it takes steps of its own between
// exchanges, with its gradients alone. A nil apart exchanges every step.
type apart struct {
	client *Client
	worker policy.Worker

	rate  float64 // of the step under way
	joins bool    // others take part in it
	steps uint64  // that were taken alone

	mu   sync.Mutex
	sums [][]aggregate.Sum // by variable and part, of the step under way
}

func newApart(c *Client) (*apart, error) {
	h := c.holders
	w := h.d.Sync.NewWorker()
	if w == nil {
		return nil, nil
	}
	a := &apart{client: c, worker: w, sums: make([][]aggregate.Sum, len(h.d.Variables))}
	for i, v := range h.d.Variables {
		if v.Sparse != nil || h.relay != nil || h.memory.device != nil {
			return nil, errors.New("steps of a worker's own need dense variables in host memory, and no local aggregation")
		}
		a.sums[i] = make([]aggregate.Sum, len(c.parts))
	}
	return a, nil
}

// alone is how many steps were taken alone.
func (a *apart) alone() uint64 {
	if a == nil {
		return 0
	}
	return a.steps
}

// begin begins a step, and reports whether others take part in it.
func (a *apart) begin(rate float64) bool {
	if a == nil {
		return true
	}
	a.rate, a.joins = rate, a.worker.Exchanges(a.client.Step())
	return a.joins
}

// put keeps a variable's sum of a part; false: it is to be sent as it is.
func (a *apart) put(variable, part int, sum aggregate.Sum) bool {
	if a == nil || variable == a.client.holders.d.LossIndex() {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sums[variable][part] = sum
	return true
}

// finish changes the values by the worker's own gradients, and sends what the
// mode makes of them. alone: the step is over, with the worker's own loss.
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
