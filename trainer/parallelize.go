package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/ps"
	"github.com/plx-run/plx/trainer/wire"
)

// Parallelize makes a single-device model train on all workers of the job:
// the variables are spread over the servers, fewest bytes first, and every
// worker starts from the chief's. It returns when all workers are there, at
// most after the start timeout. A job has one replica per worker.
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
	if !j.parallelized.CompareAndSwap(false, true) {
		return nil, errors.New("the job has a replica already")
	}
	var s settings
	rows, err := s.read(options, j.NumWorkers())
	if err != nil {
		return nil, err
	}
	r, err := newReplica(j, build, opt, rows, s)
	if err != nil {
		return nil, err
	}
	if err := r.own(ctx); err != nil {
		return nil, err
	}
	j.replica.Store(r)
	if j.IsChief() {
		j.Logf(slog.LevelInfo, "%s", r.summary(rows))
	}
	return r, nil
}

// newReplica builds the graph and declares what is in it.
func newReplica(j *Job, build Build, opt Optimizer, rows int, s settings) (*Replica, error) {
	t, nodes, err := newTape(build, rows, nil, true)
	if err != nil {
		return nil, err
	}
	r := &Replica{job: j, build: build, optimizer: opt, trained: t, nodes: nodes, evaluated: map[int]executor{}}
	d := ps.Declaration{
		Workers:       j.NumWorkers(),
		Optimizer:     opt.Settings,
		Sum:           t.model.LossKind == Sum,
		Batch:         s.batch,
		StartMillis:   s.start.Milliseconds(),
		SilenceMillis: s.peer.Milliseconds(),
	}
	for i, n := range t.model.Variables {
		v, err := declared(n)
		if err != nil {
			return nil, err
		}
		memory, ok := rowMajor(nodes[i])
		if !ok {
			panic("trainer: a variable is not row-major") // newLike made it
		}
		d.Variables = append(d.Variables, v)
		r.values = append(r.values, memory)
		r.gradients = append(r.gradients, t.reads[i].memory)
	}
	d.Pieces = ps.Place(d.Variables, len(j.contract.Cluster.PS))
	r.declared = d
	return r, d.Check(max(len(j.contract.Cluster.PS), 1))
}

// own connects the replica with whoever owns its variables.
func (r *Replica) own(ctx context.Context) error {
	servers := r.job.servers()
	if len(servers) == 0 {
		if r.job.NumWorkers() > 1 {
			return serverlessError{r.job.NumWorkers()}
		}
		local, err := ps.NewLocal(r.declared, r.values, r.gradients)
		r.owner = alone{local}
		return err
	}
	client, err := ps.Dial(ctx, ps.ClientConfig{
		Self:        r.job.contract.Task,
		Key:         r.job.key,
		Generation:  r.job.contract.Generation,
		Servers:     servers,
		Declaration: r.declared,
		Values:      r.values,
		Gradients:   r.gradients,
	})
	r.owner = remote{client}
	return err
}

// serverlessError is a job of several workers without a server.
type serverlessError struct{ workers int }

func (e serverlessError) Error() string {
	return fmt.Sprintf("%d workers and no server: nobody owns the variables", e.workers)
}

// Hint says how to get servers.
func (serverlessError) Hint() string { return "launch without --ps none" }

// summary is the chief's start line.
func (r *Replica) summary(rows int) string {
	d, bytes := r.declared, make([]int, max(len(r.job.servers()), 1))
	total := 0
	for _, p := range d.Pieces {
		n := p.Count * d.Variables[p.Variable].Dtype.Size()
		bytes[p.Server] += n
		total += n
	}
	var owners []string
	for i, n := range bytes {
		if len(r.job.servers()) == 0 {
			owners = append(owners, "in this process")
			break
		}
		owners = append(owners, fmt.Sprintf("%s %s", cluster.Task{Role: cluster.PS, Index: i}, size(n)))
	}
	return fmt.Sprintf("%s, batch %d (%s each), %s of %s (%s), %s, loss %s, %s",
		count(d.Workers, "worker"), d.Batch, count(rows, "row"), count(len(d.Variables), "variable"),
		size(total), strings.Join(owners, ", "),
		d.Optimizer.Rule, r.trained.model.LossKind, r.job.library)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func size(bytes int) string {
	switch {
	case bytes < 10<<10:
		return fmt.Sprintf("%d B", bytes)
	case bytes < 10<<20:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}
