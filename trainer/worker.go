package trainer

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/autotune"
	"github.com/plx-run/plx/trainer/checkpoint/carriage"
	"github.com/plx-run/plx/trainer/embedding"
	"github.com/plx-run/plx/trainer/exchange/client"
	"github.com/plx-run/plx/trainer/hooks"
	"github.com/plx-run/plx/trainer/operation"
	"github.com/plx-run/plx/trainer/replica"
	"github.com/plx-run/plx/trainer/resident"
	"github.com/plx-run/plx/trainer/telemetry"
	"gorgonia.org/gorgonia"
)

// worker computes the gradients of this worker's virtual workers (parts of the
// batch). It runs them on replicas of the graph and sends the gradients to the
// shard holders, the tasks that keep the variables.
type worker struct {
	*training
	name      string // name of this task, such as "worker:3"
	client    *client.Client
	tables    *embedding.Tables
	telemetry *telemetry.Recorder
	tuner     *autotune.Tuner // the autotuner; nil if there is nothing to tune
	resident  *resident.Variables
	carriage  *carriage.Carriage
	rate      float64 // learning rate of the current step, set by compute
}

// check returns an error if the feed does not fit the model. vws is the number
// of virtual workers whose rows the feed must contain.
func (w *worker) check(one *replica.Replica, feed Feed, vws int) error {
	if err := one.Check(feed, vws); err != nil {
		return err
	}
	return w.tables.Check(one, feed, vws)
}

// pull fetches the embedding rows for a step from their shard holders, and
// reports them to the autotuner.
func (w *worker) pull(ctx context.Context, feed Feed) error {
	if err := w.tables.Fetch(ctx, feed); err != nil {
		return err
	}
	for i := range w.tables.Len() {
		w.tuner.Pulled(i, w.tables.Pulled(i))
	}
	return nil
}

// requestNext requests the embedding rows for the step after this one, if the
// program has called Prefetch. If the autotuner may move rows before that
// step, requestNext requests nothing.
func (w *worker) requestNext(step int) error {
	if w.tuner.Meets(step + 1) {
		return nil
	}
	return w.tables.RequestNext()
}

// compute computes all virtual workers of this worker in a step. It returns
// the loss and the metrics of each, and adds fetched values to fetches.
func (w *worker) compute(ctx context.Context, step int, rate float64, feed Feed, fetches map[string][]gorgonia.Value) ([][]float64, error) {
	w.rate = rate
	sums := make([][]float64, w.own.Len())
	fetched := make([]map[string][]gorgonia.Value, w.own.Len())
	err := w.group.Each(ctx, len(sums), func(one *replica.Replica, index, vw int) (err error) {
		fetched[vw] = map[string][]gorgonia.Value{}
		sums[vw], err = w.computeOne(ctx, one, index, step, vw, feed)
		if err == nil {
			err = one.Fetch(fetched[vw])
		}
		if err == nil {
			err = w.carriage.Take(one, vw, len(sums))
		}
		return err
	})
	for _, f := range fetched {
		for name, v := range f {
			fetches[name] = append(fetches[name], v...)
		}
	}
	return sums, err
}

// computeOne computes one virtual worker on the replica one, and sends each
// gradient as soon as it is complete. vw counts this worker's virtual workers
// from 0; index is the replica's number.
func (w *worker) computeOne(ctx context.Context, one *replica.Replica, index, step, vw int, feed Feed) ([]float64, error) {
	w.tables.Load(one, vw)
	if err := one.Load(feed, vw); err != nil {
		return nil, err
	}
	virtual, variables := w.own.Lo+vw, len(w.model.Variables)
	for i := range variables {
		one.SetGradient(i, w.client.Gradient(virtual, i))
	}
	hooked := w.hooks.Gradients(ctx, step, virtual)
	guard := one.Guard(fmt.Sprintf("virtual worker %d of %s", virtual, w.name), w.config.CheckNumerics)
	ready := func(i int) {
		w.telemetry.Ready(index, one.NameOf, i)
		if vw == 0 && i < variables {
			w.tuner.Gradient(step, i, one.Gradient(i))
		}
		send := func() {
			if guard.Passes(i) && i < variables {
				w.client.Contribute(virtual, i)
			}
		}
		if i < variables {
			hooked.Take(hooks.GradientOf(w.declared.Variables[i], nil, one.Gradient(i)), send)
		} else {
			hooked.Follow(send)
		}
	}
	begin := time.Now()
	sums, err := w.resident.Run(one, w.call(step, virtual, true), w.rate, ready)
	w.telemetry.Computed(index, virtual, begin)
	if err := cmp.Or(err, hooked.Wait()); err != nil {
		return nil, err
	}
	if err := guard.Verdict(sums[0]); err != nil {
		return nil, err
	}
	return sums, w.contributeRest(one, vw, hooked)
}

// contributeRest sends what is known only after the whole graph has run: the
// new values for running averages, and the gradients of table rows.
func (w *worker) contributeRest(one *replica.Replica, vw int, hooked *hooks.Gradients) error {
	virtual := w.own.Lo + vw
	for i := range w.model.States {
		variable := len(w.model.Variables) + i
		if err := one.State(i, w.client.Gradient(virtual, variable)); err != nil {
			return err
		}
		w.client.Contribute(virtual, variable)
	}
	for i := range w.tables.Len() {
		index, sums := w.tables.Gradient(one, i, vw)
		variable := w.tables.Variable(i)
		if err := hooked.Observe(hooks.GradientOf(w.declared.Variables[variable], index, sums)); err != nil {
			return err
		}
		w.client.ContributeRows(virtual, variable, index, sums)
	}
	return nil
}

// evaluate computes loss, metrics and fetches of the feed without training.
// rows is the number of rows evaluated.
func (w *worker) evaluate(ctx context.Context, step int, feed Feed) (rows int, result Result, err error) {
	if rows, err = w.group.Rows(feed); err != nil {
		return rows, result, err
	}
	one, err := w.group.Evaluator(rows)
	if err != nil {
		return rows, result, err
	}
	feed = w.carriage.Complete(feed, rows)
	if err := w.check(one, feed, 1); err != nil {
		return rows, result, err
	}
	if err := w.tables.Pull(ctx, one, feed, 1); err != nil {
		return rows, result, err
	}
	w.tables.Load(one, 0)
	if err := cmp.Or(one.Load(feed, 0), w.resident.Fetch()); err != nil {
		return rows, result, err
	}
	sums, err := one.Run(w.call(step, 0, false), nil)
	if err != nil {
		return rows, result, err
	}
	result = Result{Loss: sums[0], Metrics: one.Named(sums[1:]), Fetches: map[string][]gorgonia.Value{}}
	return rows, result, one.Fetch(result.Fetches)
}

// call returns the description of one run of the graph, which the executor
// passes to operations such as dropout.
func (w *worker) call(step, virtual int, train bool) operation.Call {
	return operation.Call{
		Step: uint64(step), VirtualWorker: virtual, VirtualWorkers: w.declared.VirtualWorkers, Seed: w.config.Seed, Train: train,
	}
}
