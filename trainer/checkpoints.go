package trainer

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/checkpoint/carriage"
	"github.com/plx-run/plx/trainer/checkpoint/saver"
	"github.com/plx-run/plx/trainer/checkpoint/store"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/client"
)

// saving handles checkpoints for one worker. It stores the worker's recurrent
// state. On the chief (worker 0), it also decides when a checkpoint is made.
// Without --ckpt-dir it does nothing.
type saving struct {
	training *training
	network  *network
	client   *client.Client
	carriage *carriage.Carriage
	notes    notes
	saver    *saver.Saver // decides when a checkpoint is made; non-nil only on the chief (worker 0) with --ckpt-dir
	late     int          // number of checkpoints that were delayed because the previous checkpoint was still being written
	restored bool         // true if this worker has finished reading the checkpoint from which training resumes, or if no such checkpoint exists
}

func newSaving(t *training, n *network, c *client.Client, carried *carriage.Carriage) *saving {
	d := &t.declared
	s := &saving{training: t, network: n, client: c, restored: d.Checkpoint == "", carriage: carried}
	s.notes.restore(t.resumed)
	if n.store == nil || !n.contract.Task.IsChief() {
		return s
	}
	saved := int(c.Step())
	if d.Checkpoint == "" {
		saved = -1
	}
	s.saver = saver.New(saver.Config{
		Steps: t.config.CheckpointEverySteps, Period: t.config.CheckpointPeriod(),
		Saved: saved, InStep: d.Sync.InStep(), Workers: len(d.Workers),
		Store: n.store, Exchange: c.Saves, Describe: s.describe, Waiting: n.log.waiting, Late: s.tooLate,
	})
	return s
}

// tooLate counts the checkpoints that are delayed because the previous one is
// still being written. It logs the first delay as a warning, and further ones
// at level debug. The parameter step is the step whose checkpoint is delayed.
// The parameter writing is the step of the checkpoint that is being written.
func (s *saving) tooLate(step, writing int) {
	level := slog.LevelDebug
	if s.late++; s.late == 1 {
		level = slog.LevelWarn
	}
	s.network.log.Logf(level, "no checkpoint of step %d: that of step %d is still being written, and the next one is made after it; --ckpt-every-steps %d is too often",
		step, writing, s.training.config.CheckpointEverySteps)
}

// before must be called before each step. It lets the field carriage, which
// keeps this worker's recurrent state, remember the state before the step for
// a checkpoint.
func (s *saving) before() {
	if !s.restored {
		s.restored = true
		s.network.store.Restored()
	}
	s.carriage.Keep()
}

// describe returns the manifest of the next checkpoint and the tasks that
// contribute to it. cut holds the number of steps of each group of workers; it
// is nil if all workers are in the same step.
func (s *saving) describe(cut []uint64) store.Expected {
	c, t, d := &s.network.contract, s.training, &s.training.declared
	e := store.Expected{Number: s.client.Saves.Number(), Manifest: checkpoint.Manifest{
		Job: c.Job, Generation: c.Generation, Step: s.client.Step(), Cut: cut,
		VirtualWorkers: d.VirtualWorkers, Batch: t.config.GlobalBatch, Seed: t.config.Seed, Model: d.Model,
		Optimizer: d.Optimizer, Variables: t.checkpointed(),
	}}
	if cut != nil {
		e.Manifest.Step = cut[0] // The first group has the chief, so this is the chief's number of steps.
	}
	s.notes.write(&e.Manifest)
	for _, p := range d.Pieces { // each checkpoint lists the shard holders again, because they may have changed since the previous checkpoint
		if task := d.Holders[p.Holder]; !slices.Contains(e.Holders, task) {
			e.Holders = append(e.Holders, task)
		}
	}
	if s.carriage.Saves() {
		for rank := range d.Workers {
			e.Carriers = append(e.Carriers, cluster.Task{Role: cluster.Worker, Index: rank})
		}
	}
	return e
}

// last makes the checkpoint at the end of training. step is the number of
// steps taken. Workers with recurrent state (Model.Carried) wait for each
// other before they end, because the chief may request that state after a
// worker's last step.
func (s *saving) last(ctx context.Context, step int) error {
	if s.network.store == nil {
		return nil
	}
	s.before()
	s.carriage.SaveNow(int(s.client.Step()))
	if s.saver != nil && !s.training.declared.Sync.InStep() {
		s.network.group.Close() // the chief joins no further collective (such as an all-reduce); Close makes a collective fail on workers that wait for the chief
	}
	if err := s.saver.Conclude(ctx, step); err != nil {
		return err
	}
	if sum := s.network.store.Summary(); s.saver != nil && sum.Saved+sum.Failed > 0 {
		s.network.log.Logf(slog.LevelInfo, "made %s (%s), %d failed; steps held for %v at most, %v in all",
			plural.Count(sum.Saved, "checkpoint"), size(int(sum.Bytes)), sum.Failed, roundForLog(sum.LongestHeld), roundForLog(sum.Held))
	}
	if s.late > 1 {
		s.network.log.Logf(slog.LevelWarn, "%d checkpoints were not made at their steps, because another was still being written", s.late)
	}
	if !s.carriage.Saves() {
		return nil
	}
	defer s.network.log.waiting(func() string { return "the last checkpoint of the other workers" })()
	return s.network.group.Barrier(ctx)
}

// roundForLog rounds a duration to ten microseconds for the log.
func roundForLog(t time.Duration) time.Duration { return t.Round(10 * time.Microsecond) }

// restore sets the step and the checkpoint from which training starts, if the
// chief (worker 0) finds a checkpoint to resume from. For a model that
// OpenCheckpoint opened, it uses the opened checkpoint.
func (t *training) restore(ctx context.Context, n *network) error {
	if n.source != nil {
		m := n.source.Manifest()
		t.resumed = m
		t.declared.First, t.declared.Checkpoint = m.Step, m.ID
		if err := m.Fits(t.checkpointed(), m.Optimizer); err != nil { // check only the variables: m fits its own optimiser, and a program that evaluates needs no optimiser
			return foreignError{err}
		}
		return nil
	}
	if n.store == nil {
		return nil
	}
	defer n.log.waiting(func() string { return "which checkpoint to resume from" })()
	d, chief, choose := &t.declared, n.contract.Task.IsChief(), n.store.Chosen
	if chief {
		choose = func(ctx context.Context) (*checkpoint.Manifest, error) {
			var other error // last error of a checkpoint that does not fit this model or optimiser; nil if all fit
			m, err := n.store.Choose(ctx, func(m *checkpoint.Manifest) error {
				err := m.Fits(t.checkpointed(), d.Optimizer)
				other = cmp.Or(err, other)
				return err
			})
			if err != nil && other != nil {
				err = foreignError{err}
			}
			return m, err
		}
	}
	m, err := choose(ctx)
	if err != nil || m == nil {
		return err
	}
	t.resumed = m
	d.First, d.Checkpoint = m.Step, m.ID // the declaration of the job tells shard holders which checkpoint to read
	if d.Sync.UsesCuts() && len(m.Cut) == len(d.Groups()) {
		d.Cut = m.Cut
	}
	if chief {
		of, age := "", "less than 1s"
		if d := time.Since(m.Time).Round(time.Second); d > 0 {
			age = d.String()
		}
		if m.Job != "" { // Job is empty if plx did not launch the program that made the checkpoint
			of = " of job " + m.Job
		}
		n.log.Logf(slog.LevelInfo, "going on after step %d, from checkpoint %s%s, made %s ago",
			m.Step, m.ID, of, age)
		t.compare(m, n.log)
	}
	return nil
}

// foreignError wraps the error about a checkpoint that belongs to another
// model or another optimiser, and adds a hint.
type foreignError struct{ error }

func (foreignError) Hint() string {
	return "model and optimiser must be those of its training: give the flags that choose them as they were then, or begin with the values that fit: --init-from"
}

func (e foreignError) Unwrap() error { return e.error }

// carries returns this worker's recurrent state (Model.Carried), read from the
// checkpoint that training resumes from. Inputs that the checkpoint lacks
// begin with zeros.
func (t *training) carries(ctx context.Context, n *network) (*carriage.Carriage, error) {
	from, to := t.feeds()
	c := carriage.Config{Store: n.store, InStep: t.declared.Sync.InStep(), From: from, To: to, Rows: t.rows}
	if n.source == nil { // a model opened with OpenCheckpoint is only evaluated, and every evaluation begins with zeros, so no recurrent state is read
		c.Checkpoint = t.declared.Checkpoint
	}
	for name := range t.model.Carried {
		c.Inputs = append(c.Inputs, t.model.nodes().Input(name))
	}
	carried, err := carriage.New(c)
	if err != nil {
		return nil, err
	}
	missing, err := carried.Restore(ctx)
	for _, name := range missing {
		n.log.Logf(slog.LevelWarn, "checkpoint %s has no state of input %q: it begins with zeros", c.Checkpoint, name)
	}
	return carried, err
}

// compare logs the differences between a checkpoint and this run that change
// the result: the weights will differ from those of an uninterrupted run.
func (t *training) compare(m *checkpoint.Manifest, log *printer) {
	for _, d := range []struct {
		what      string
		then, now any
	}{
		{"virtual workers", m.VirtualWorkers, t.declared.VirtualWorkers},
		{"rows in a batch", m.Batch, t.config.GlobalBatch},
		{"seed", m.Seed, t.config.Seed},
	} {
		if d.then != d.now && t.declared.Sync.InStep() { // in --sync modes other than sync, two runs never have the same bits
			log.Logf(slog.LevelWarn, "the checkpoint was made with %s %v, now it is %v: the bits will be others than without the interruption", d.what, d.then, d.now)
		}
	}
	switch {
	case len(m.Cut) < 2 || slices.Min(m.Cut) == slices.Max(m.Cut):
	case t.declared.Cut != nil:
		log.Logf(slog.LevelInfo, "each worker goes on where it was, after steps %d to %d", slices.Min(m.Cut), slices.Max(m.Cut))
	default:
		log.Logf(slog.LevelWarn, "the checkpoint has %d to %d steps of workers that did not wait for each other: as there are others now, all go on after step %d",
			slices.Min(m.Cut), slices.Max(m.Cut), m.Step)
	}
}

// checkpointed returns the variables of the model in the form that a
// checkpoint's manifest has.
func (t *training) checkpointed() (all []checkpoint.Variable) {
	for _, v := range t.declared.Variables {
		all = append(all, checkpoint.Variable{Name: v.Name, Dtype: string(v.Dtype), Shape: slices.Clone(v.Shape),
			Sparse: v.Sparse != nil, Update: v.Update, Momentum: v.Momentum})
	}
	return all
}
