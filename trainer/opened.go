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

// Checkpoint is a model with the variables of a saved checkpoint, for
// evaluation and inference in one process. Any goroutine may call its methods;
// they run one at a time.
type Checkpoint struct {
	job     *Job // job with this process as its only worker
	session *Session
	source  *weights.Source
}

// OpenCheckpoint builds a model and loads its variables from a checkpoint. It
// uses only this process and ignores the command line:
//
//	c, err := trainer.OpenCheckpoint(ctx, "ckpt", build)
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	result, err := c.Evaluate(ctx, trainer.Feed{"x": images, "y": labels})
//
// path names a folder with several checkpoints, or the folder of a single one.
// In a folder with several, OpenCheckpoint takes the newest valid checkpoint.
// DIR/best stands for the checkpoint in DIR with the highest score, see
// [Session.SaveIfBest]. All files of the checkpoint must be in the folder; plx
// fetch copies them there.
//
// build must return the model that was trained. OpenCheckpoint returns an
// error if names, shapes or types of variables differ. The optimiser may
// differ, and so may the number of workers, servers and virtual workers.
//
// OpenCheckpoint uses only the fields Device and GlobalBatch of configs.
// GlobalBatch is the number of rows of the first graph; the default is the
// number of rows of one virtual worker in the training.
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

// build builds the model and loads the checkpoint, in a job with one worker.
// given holds the caller's configuration.
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

// ID returns the name of the checkpoint.
func (c *Checkpoint) ID() string { return c.source.Manifest().ID }

// Step returns the number of training steps after which the checkpoint was
// made.
func (c *Checkpoint) Step() int { return int(c.source.Manifest().Step) }

// Noted returns the number that the training program had passed to
// [Session.Note] under a name. It returns false if there is none.
func (c *Checkpoint) Noted(name string) (float64, bool) { return c.session.Noted(name) }

// Evaluate computes loss, metrics and fetches, as [Session.Evaluate] does. The
// feed must contain every input of the model, including the labels for the
// loss, even if the caller needs only fetches.
func (c *Checkpoint) Evaluate(ctx context.Context, feed Feed) (Result, error) {
	return c.session.Evaluate(ctx, feed)
}

// Values returns a copy of every variable, by name, as [Session.Values] does.
func (c *Checkpoint) Values(ctx context.Context) (map[string]*tensor.Dense, error) {
	return c.session.Values(ctx)
}

// Close frees the model and closes the checkpoint's files. No other method may
// be called afterwards.
func (c *Checkpoint) Close() error {
	err := c.session.close(nil)
	c.job.network.close()
	return errors.Join(err, c.source.Close())
}
