package trainer

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/checkpoint/saver"
	"github.com/plx-run/plx/trainer/checkpoint/store"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange"
)

// saving is one worker's part in checkpoints. Without checkpoints it does nothing.
type saving struct {
	training *training
	network  *network
	client   *exchange.Client
	carriage carriage
	saver    *saver.Saver // decides when; nil on all workers but the chief
	restored bool         // this worker wants nothing more of the checkpoint that training resumes from
}

func newSaving(t *training, n *network, client *exchange.Client) *saving {
	d := &t.declared
	from, to := t.feeds()
	s := &saving{training: t, network: n, client: client, restored: d.Checkpoint == "",
		carriage: carriage{store: n.store, inStep: d.Sync.InStep(), checkpoint: d.Checkpoint, from: from, to: to}}
	if n.store == nil || !n.contract.Task.IsChief() {
		return s
	}
	saved := int(client.Step())
	if d.Checkpoint == "" {
		saved = -1
	}
	s.saver = saver.New(saver.Config{
		Steps: t.config.CheckpointSteps, Period: time.Duration(t.config.CheckpointSecs) * time.Second,
		Saved: saved, InStep: d.Sync.InStep(), Workers: len(d.Workers),
		Store: n.store, Exchange: client, Describe: s.describe, Waiting: n.log.waiting,
	})
	return s
}

// before begins a step.
func (s *saving) before() {
	if !s.restored {
		s.restored = true
		s.network.store.Restored()
	}
	s.carriage.keep()
}

// describe says who takes part in a checkpoint, and what it is of. cut is the
// number of steps of each group, nil if all workers are in the same step.
func (s *saving) describe(cut []uint64) store.Expected {
	return store.Expected{Number: s.client.Saves(), Holders: s.holders(), Carriers: s.carriers(), Manifest: s.manifest(cut)}
}

// holders are the tasks that hold something now.
func (s *saving) holders() (all []cluster.Task) {
	for _, p := range s.training.declared.Pieces {
		if task := s.training.declared.Holders[p.Holder]; !slices.Contains(all, task) {
			all = append(all, task)
		}
	}
	return all
}

// carriers are the workers that add state of their own.
func (s *saving) carriers() (all []cluster.Task) {
	if !s.carriage.saves() {
		return nil
	}
	for rank := range s.training.declared.Workers {
		all = append(all, cluster.Task{Role: cluster.Worker, Index: rank})
	}
	return all
}

func (s *saving) manifest(cut []uint64) checkpoint.Manifest {
	c, t := &s.network.contract, s.training
	step := s.client.Step()
	if cut != nil {
		step = cut[0] // the chief's
	}
	return checkpoint.Manifest{
		Job: c.Job, Generation: c.Generation, Step: step, Cut: cut,
		VirtualWorkers: t.declared.VirtualWorkers, Batch: t.settings.batch, Seed: t.config.Seed, Model: t.declared.Model,
		Optimizer: t.declared.Optimizer, Variables: t.checkpointed(),
	}
}

// last is this worker's part in the checkpoint at the end, after so many steps.
// Workers that carry state leave together: the state comes from each, and the
// chief may ask for it after another has taken its last step.
func (s *saving) last(ctx context.Context, step int) error {
	if s.network.store == nil {
		return nil
	}
	s.before()
	s.carriage.saveNow(int(s.client.Step()))
	if s.saver != nil && !s.training.declared.Sync.InStep() {
		s.network.group.Close() // else others would wait there for this worker
	}
	if err := s.saver.Conclude(ctx, step); err != nil {
		return err
	}
	if sum := s.network.store.Summary(); s.saver != nil && sum.Saved+sum.Failed > 0 {
		s.network.log.Logf(slog.LevelInfo, "%s of %s made, %d failed; steps held for %v at most, %v in all",
			count(sum.Saved, "checkpoint"), size(int(sum.Bytes)), sum.Failed, brief(sum.LongestHeld), brief(sum.Held))
	}
	if !s.carriage.saves() {
		return nil
	}
	defer s.network.log.waiting(func() string { return "the last checkpoint of the other workers" })()
	return s.network.group.Barrier(ctx)
}

// brief is a time to ten microseconds.
func brief(t time.Duration) time.Duration { return t.Round(10 * time.Microsecond) }

// restore makes training begin with the checkpoint that the chief chooses, if
// there is one.
func (t *training) restore(ctx context.Context, n *network) error {
	if n.store == nil {
		return nil
	}
	defer n.log.waiting(func() string { return "which checkpoint to resume from" })()
	var m *checkpoint.Manifest
	var err error
	chief := n.contract.Task.IsChief()
	if chief {
		m, err = n.store.Choose(ctx, func(m *checkpoint.Manifest) error {
			return m.Fits(t.checkpointed(), t.declared.Optimizer)
		})
	} else {
		m, err = n.store.Chosen(ctx)
	}
	if err != nil || m == nil {
		return err
	}
	t.resume(m)
	if chief {
		n.log.Logf(slog.LevelInfo, "going on after step %d, from checkpoint %s of job %s, made %v ago",
			m.Step, m.ID, m.Job, time.Since(m.Time).Round(time.Second))
		t.compare(m, n.log)
	}
	return nil
}

// resume makes training begin with a checkpoint. Shard holders read it when they
// get the declaration.
func (t *training) resume(m *checkpoint.Manifest) {
	d := &t.declared
	d.First, d.Checkpoint = m.Step, m.ID
	if d.Sync.Cuts() && len(m.Cut) == len(d.Groups()) {
		d.Cut = m.Cut
	}
}

// compare reports what in a checkpoint makes this run differ from one that was
// never interrupted.
func (t *training) compare(m *checkpoint.Manifest, log *printer) {
	for _, d := range []struct {
		what      string
		then, now any
	}{
		{"virtual workers", m.VirtualWorkers, t.declared.VirtualWorkers},
		{"rows in a batch", m.Batch, t.settings.batch},
		{"seed", m.Seed, t.config.Seed},
	} {
		if d.then != d.now && t.declared.Sync.InStep() { // in other modes bits are never the same
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

// checkpointed describes the variables as a manifest does.
func (t *training) checkpointed() (all []checkpoint.Variable) {
	for _, v := range t.declared.Variables {
		all = append(all, checkpoint.Variable{Name: v.Name, Dtype: string(v.Dtype), Shape: slices.Clone(v.Shape),
			Sparse: v.Sparse != nil, Update: v.Update, Momentum: v.Momentum})
	}
	return all
}
