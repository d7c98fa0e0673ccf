package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/plx-run/plx/trainer/checkpoint/weights"
	"github.com/plx-run/plx/trainer/config"
	"gorgonia.org/tensor"
)

// Checkpoint is a model with the values of a checkpoint, for evaluation and inference. Any
// goroutine may call its methods; they run one after the other.
type Checkpoint struct {
	job     *Job // of this process alone
	session *Session
	source  *weights.Source
}

// OpenCheckpoint builds a model with the values of a checkpoint, in this process alone and
// without a command line:
//
//	c, err := trainer.OpenCheckpoint(ctx, "ckpt", build)
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	result, err := c.Evaluate(ctx, trainer.Feed{"x": images, "y": labels})
//
// path is a folder of checkpoints, of which the newest good one counts, DIR/best for the one in
// DIR with the highest score, see [Session.SaveIfBest], or the folder of one checkpoint. All files must lie there, as plx fetch leaves them. build makes the model that
// was trained: variables with other names, shapes or types are refused. The optimiser, and
// the number of workers, servers and virtual workers do not matter. Of configs, Device counts,
// and GlobalBatch, the rows of the first graph that is built, by default those of a virtual
// worker.
func OpenCheckpoint(ctx context.Context, path string, build Build, configs ...Config) (*Checkpoint, error) {
	c, err := openCheckpoint(ctx, path, build, configs)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	return c, nil
}

func openCheckpoint(ctx context.Context, path string, build Build, configs []Config) (*Checkpoint, error) {
	log := &printer{level: slog.LevelInfo, out: os.Stderr}
	source, err := weights.Open(ctx, path, log.Logf)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{source: source}
	if err := c.build(ctx, build, config.Default().With(configs...)); err != nil {
		return nil, errors.Join(err, source.Close())
	}
	return c, nil
}

// build makes the model as a job of one process does.
func (c *Checkpoint) build(ctx context.Context, build Build, given config.Effective) error {
	m := c.source.Manifest()
	if m == nil {
		return fmt.Errorf("%s is a file of tensors: name the folder of a checkpoint; a training reads such a file with --init-from", c.source)
	}
	rows := max(1, m.Batch/max(1, m.VirtualWorkers))
	p := process{getenv: os.Getenv, log: os.Stderr, out: os.Stdout, config: config.Default().With(Config{
		Device: given.Device, GlobalBatch: cmp.Or(given.GlobalBatch, rows), Seed: m.Seed,
	})}
	j, err := p.prepare(soloContract, false, nil)
	if err != nil {
		return err
	}
	j.network.source = c.source
	s, err := j.parallelize(ctx, build, SGD(0), nil)
	if err != nil {
		j.network.close()
		return err
	}
	c.job, c.session = j, s
	return nil
}

// ID names the checkpoint.
func (c *Checkpoint) ID() string { return c.source.Manifest().ID }

// Step is the number of steps that the values have seen.
func (c *Checkpoint) Step() int { return int(c.source.Manifest().Step) }

// Noted returns what the training had noted under a name, see [Session.Note].
func (c *Checkpoint) Noted(name string) (float64, bool) { return c.session.Noted(name) }

// Evaluate computes loss, metrics and fetches, as [Session.Evaluate] does. A model whose
// loss needs labels is fed some also if only fetches are wanted.
func (c *Checkpoint) Evaluate(ctx context.Context, feed Feed) (Result, error) {
	return c.session.Evaluate(ctx, feed)
}

// Values returns a copy of every variable, by name, as [Session.Values] does.
func (c *Checkpoint) Values(ctx context.Context) (map[string]*tensor.Dense, error) {
	return c.session.Values(ctx)
}

// Close frees what the checkpoint holds. Nothing can be evaluated afterwards.
func (c *Checkpoint) Close() error {
	err := c.session.close(nil)
	c.job.network.close()
	return errors.Join(err, c.source.Close())
}
