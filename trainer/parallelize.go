package trainer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/autotune"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/embedding"
	"github.com/plx-run/plx/trainer/exchange"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/telemetry"
	"github.com/plx-run/plx/trainer/wire"
)

// Parallelize makes a single-device model train on all workers of the job.
// Every variable gets a shard holder, as --arch has it, and every worker starts
// from the chief's values. It returns when all workers are there, at most after
// the start timeout. A job has one replica per worker.
//
// What is wrong with the model, or differs between workers, is an error here
// and not at the first step.
func (j *Job) Parallelize(ctx context.Context, build Build, opt Optimizer, options ...Option) (*Replica, error) {
	r, err := j.parallelize(ctx, build, opt, options)
	if err != nil {
		return nil, fmt.Errorf("parallelize: %w", err)
	}
	return r, nil
}

func (j *Job) parallelize(ctx context.Context, build Build, opt Optimizer, options []Option) (*Replica, error) {
	if err := wire.CheckHost(); err != nil {
		return nil, err
	}
	if build == nil {
		return nil, errors.New("there is no model to build: Build is nil")
	}
	if !j.parallelized.CompareAndSwap(false, true) {
		return nil, errors.New("the job has a replica already, or has tried to connect one")
	}
	t, err := j.newTraining(build, opt, options)
	if err != nil {
		j.parallelized.Store(false) // nobody has heard of it
		return nil, err
	}
	if j.IsChief() {
		err = t.exportGraph(j.log)
	}
	if err != nil {
		return nil, err
	}
	out, err := telemetry.Open(&j.config, j.contract.Task, j.log.Logf)
	if err != nil {
		j.parallelized.Store(false)
		return nil, err
	}
	r, err := j.connect(ctx, t, out)
	if err != nil {
		return nil, errors.Join(err, out.Close(0))
	}
	j.replica.Store(r)
	j.progress.steps.Store(int64(r.step))
	if j.IsChief() {
		t.report(j.log, j.servers(), j.host.library)
	}
	if j.IsChief() && j.tell != nil && j.NumWorkers() > 1 && t.declared.Sync.ToleratesLoss() {
		j.tell(cluster.ControlMessage{Kind: cluster.ToleratesLoss}) // all workers are there; another place notices a dead channel
	}
	return r, nil
}

// newTraining builds and declares a model. It talks to nobody.
func (j *Job) newTraining(build Build, opt Optimizer, options []Option) (t *training, err error) {
	t = &training{config: &j.config, optimizer: opt}
	t.lo, t.hi = j.part(j.WorkerID())
	if t.rows, err = t.settings.read(options, j.virtual); err != nil {
		return nil, err
	}
	if err := t.build(build, j.config.ReplicaCount(t.hi-t.lo, j.LocalWorldSize())); err != nil {
		return nil, err
	}
	mode, err := j.config.Mode(j.NumWorkers(), j.servers())
	if err != nil {
		return nil, err
	}
	t.declared.Sync, t.declared.VirtualWorkers = mode, j.virtual
	t.declared.Fingerprint = j.host.numerics
	for rank := range j.NumWorkers() {
		lo, hi := j.part(rank)
		t.declared.Workers = append(t.declared.Workers, layout.Range{Lo: lo, Hi: hi})
	}
	if err := t.declare(); err != nil {
		return nil, err
	}
	return t, t.place(j.servers(), j.network.together())
}

// connect joins the shard holders.
func (j *Job) connect(ctx context.Context, t *training, out *telemetry.Recorder) (*Replica, error) {
	if err := t.restore(ctx, j.network); err != nil {
		return nil, err
	}
	defer j.log.waiting(func() string { return "Parallelize" })()
	memory := t.group.Memory()
	client, err := exchange.Connect(ctx, exchange.ClientConfig{
		Peers:       j.network.peers(),
		Door:        j.network.listener,
		Cluster:     j.contract.Cluster,
		Declaration: t.declared,
		Values:      append(slices.Clone(memory), make([][]byte, len(t.model.Embeddings))...), // shard holders have the tables
		Trace:       out.Trace(),
		Checkpoints: j.network.checkpoints(),
	})
	if err != nil {
		return nil, err
	}
	step := int(client.Step())
	return &Replica{
		job: j, training: t, client: client, telemetry: out, from: step, step: step,
		variables: variables{t.declared.Variables, memory, client},
		saving:    newSaving(t, j.network, client),
		worker: &worker{
			training: t, name: j.contract.Task.String(), client: client, telemetry: out,
			tables: embedding.New(t.model.tables(), client, t.declared.Sync.InStep()),
			tuner:  newTuner(t.tuning(j.network, client, step, out.Trace()), j.servers()),
		},
	}, nil
}

// newTuner returns nil if the workers do not take their steps together, or if
// nothing travels.
func newTuner(c autotune.Config, servers int) *autotune.Tuner {
	if !c.Declaration.Sync.InStep() || len(c.Declaration.Workers)+servers == 1 {
		return nil
	}
	return autotune.New(c)
}
