package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/owner"
	"github.com/plx-run/plx/trainer/wire"
)

// Parallelize makes a single-device model train on all workers of the job.
// Every variable gets an owner, as --arch has it, and every worker starts from
// the chief's values. It returns when all workers are there, at most after the
// start timeout. A job has one replica per worker.
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
	r, err := j.describe(build, opt, options)
	if err != nil {
		j.parallelized.Store(false) // nobody has heard of it
		return nil, err
	}
	if err := r.restore(ctx); err != nil {
		return nil, errors.Join(err, r.hooks.close())
	}
	if err := r.connect(ctx); err != nil {
		return nil, errors.Join(err, r.hooks.close())
	}
	r.step = int(r.client.Step())
	r.standing, r.tuner, r.saver = r.stands(), r.newTuner(), r.newSaver()
	j.replica.Store(r)
	j.steps.Store(int64(r.step))
	if j.IsChief() {
		r.report()
		r.tellWhatItBears()
	}
	return r, nil
}

// tellWhatItBears tells the agent of a job that goes on when workers other than
// the chief are lost, from now on: until all were there they could not be.
func (r *Replica) tellWhatItBears() {
	if j := r.job; j.tell != nil && j.NumWorkers() > 1 && r.declared.Sync.BearsLoss() {
		j.tell(cluster.ControlMessage{Kind: cluster.Bears}) // a dead channel is noticed elsewhere
	}
}

// describe builds and declares a replica; it talks to nobody.
func (j *Job) describe(build Build, opt Optimizer, options []Option) (*Replica, error) {
	r := &Replica{job: j, build: build, optimizer: opt, evaluated: map[int]*lane{}}
	r.lo, r.hi = j.shards(j.WorkerID())
	var err error
	if r.rows, err = r.settings.read(options, j.leaves); err != nil {
		return nil, err
	}
	if err := r.makeLanes(); err != nil {
		return nil, err
	}
	if err := r.declare(); err != nil {
		return nil, err
	}
	return r, r.hooks.open(r)
}

// makeLanes builds the model once per lane, on the same variables.
func (r *Replica) makeLanes() error {
	for range r.job.config.laneCount(r.hi-r.lo, r.job.LocalWorldSize()) {
		l, kept, err := newLane(r.build, r.rows, r.kept, true)
		if err != nil {
			return err
		}
		r.lanes, r.kept = append(r.lanes, l), kept
	}
	for i, v := range r.kept {
		memory, ok := rowMajor(v)
		if !ok {
			panic(fmt.Sprintf("trainer: variable %d is not row-major", i)) // newLike made it
		}
		r.memory = append(r.memory, memory)
	}
	for i, e := range r.lanes[0].model.Embeddings {
		r.tables = append(r.tables, newTable(e, i, len(r.kept)+i))
	}
	return nil
}

// declare says what is trained, and where each variable lives.
func (r *Replica) declare() error {
	j, model := r.job, r.lanes[0].model
	sync, err := j.mode()
	if err != nil {
		return err
	}
	d := owner.Declaration{
		Leaves:        j.leaves,
		Optimizer:     r.optimizer.Settings,
		Sum:           model.LossKind == Sum,
		Batch:         r.settings.batch,
		Sync:          sync,
		Clip:          r.settings.clip,
		Norm:          r.settings.norm || j.config.summaries != "" && sync.Mode != owner.Backup,
		Metrics:       len(model.Metrics),
		BucketBytes:   j.config.bucket,
		Fingerprint:   j.numerics,
		Exact:         j.config.exact(),
		StartMillis:   r.settings.start.Milliseconds(),
		SilenceMillis: r.settings.peer.Milliseconds(),
	}
	for rank := range j.NumWorkers() {
		lo, hi := j.shards(rank)
		d.Workers = append(d.Workers, owner.Range{Lo: lo, Hi: hi})
	}
	if d.Variables, err = r.variables(); err != nil {
		return err
	}
	if d.Model, err = model.digest(); err != nil {
		return fmt.Errorf("describe the model: %w", err)
	}
	dense := len(model.Variables)+len(model.States) > 0
	arch, _ := j.config.place(j.NumWorkers(), len(j.servers()), len(model.Embeddings) > 0, dense)
	d.Movable = len(r.tables) > 0 && sync.Together() && j.NumWorkers()+len(j.servers()) > 1
	if err := d.Place(owner.Architecture(arch), len(j.servers()), j.config.partition); err != nil {
		return err
	}
	if sync.Together() && slices.ContainsFunc(d.Owners, isServer) {
		d.Hosts = j.hosts()
	}
	r.declared = d
	if err := r.cutTables(); err != nil {
		return err
	}
	if err := r.checkTogether(); err != nil {
		return err
	}
	return d.Check()
}

// checkTogether refuses what needs workers that are in the same step.
func (r *Replica) checkTogether() error {
	mode := r.declared.Sync
	if mode.Together() {
		return nil
	}
	if r.job.config.checkParameters > 0 {
		return fmt.Errorf("--check-parameters with --sync %s: only in sync do all workers have the same variables at the same time", mode)
	}
	if r.settings.ending == EndTogether {
		return fmt.Errorf("EndTogether with --sync %s: only in sync is there a step that all workers take together; use JoinOthers or WaitForAll", mode)
	}
	return nil
}

// variables describes all variables: trained ones, states, tables.
func (r *Replica) variables() (all []owner.Variable, err error) {
	model := r.lanes[0].model
	for i, n := range model.kept() {
		v, err := declared(n)
		if err != nil {
			return nil, err
		}
		if i >= len(model.Variables) {
			v.Update, v.Momentum = optimizer.Average, model.States[i-len(model.Variables)].Momentum
		}
		all = append(all, v)
	}
	for _, e := range model.Embeddings {
		v, err := e.declared(model.LossKind)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

func isServer(t cluster.Task) bool { return t.Role == cluster.PS }

// hosts are the ranks of the workers of each host, told by their addresses;
// nil where no host has several.
func (j *Job) hosts() []owner.Range {
	var hosts []owner.Range
	last := ""
	for rank, addr := range j.contract.Cluster.Worker {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil // no aggregation rather than a wrong one
		}
		if rank == 0 || host != last {
			hosts, last = append(hosts, owner.Range{Lo: rank}), host
		}
		hosts[len(hosts)-1].Hi = rank + 1
	}
	if len(hosts) == j.NumWorkers() {
		return nil // there is nothing to add
	}
	return hosts
}

// connect joins the owners.
func (r *Replica) connect(ctx context.Context) (err error) {
	defer r.job.waiting(func() string { return "Parallelize" })()
	r.client, err = owner.Connect(ctx, owner.ClientConfig{
		Peers:       r.job.peers(),
		Door:        r.job.door,
		Cluster:     r.job.contract.Cluster,
		Declaration: r.declared,
		Values:      append(slices.Clone(r.memory), make([][]byte, len(r.tables))...), // tables are with their owners
		Trace:       r.hooks.trace,
		Save:        r.job.saving(),
		Restore:     r.job.restoring(),
	})
	return err
}

// report is what the chief says at the start: how it trains, and where each
// variable lives.
func (r *Replica) report() {
	d, j := r.declared, r.job
	model := r.lanes[0].model
	arch, why := j.config.place(j.NumWorkers(), len(j.servers()), len(model.Embeddings) > 0, len(r.memory) > 0)
	if why != "" {
		arch += " (" + why + ")"
	}
	total := 0
	for _, v := range d.Variables {
		total += bytesOf(v)
	}
	workers := count(j.NumWorkers(), "worker")
	if j.leaves != j.NumWorkers() {
		workers += fmt.Sprintf(" for %d virtual ones", j.leaves)
	}
	j.Logf(slog.LevelInfo, "%s, %s, %s, batch %d (%s each), %s of %s, %s, loss %s, %s",
		workers, arch, d.Sync, d.Batch, count(r.rows, "row"), count(len(d.Variables), "variable"),
		size(total), d.Optimizer.Rule, model.LossKind, j.library)
	for i, v := range d.Variables {
		level := slog.LevelInfo
		if i >= maxReported {
			level = slog.LevelDebug
		}
		j.Logf(level, "%s", r.residence(i, v))
	}
	if more := len(d.Variables) - maxReported; more > 0 {
		j.Logf(slog.LevelInfo, "and %s, which PLX_LOG_LEVEL=debug lists", count(more, "more variable"))
	}
	if r.tuner != nil {
		r.predict()
	}
}

// maxReported is how many variables the start report lists.
const maxReported = 100

// residence says where a variable lives and why there.
func (r *Replica) residence(i int, v owner.Variable) string {
	bytes, total := map[string]int{}, 0
	n, _ := v.Elements() // Check has seen it
	unit := v.Dtype.Size()
	kind := "dense"
	if v.Sparse != nil {
		kind, unit = "sparse", unit*n/v.Shape[0]
	}
	for _, p := range r.declared.Pieces {
		if p.Variable == i {
			bytes[r.declared.Owners[p.Owner].String()] += p.Count * unit
			total += p.Count * unit
		}
	}
	on := fmt.Sprintf("cut over %d tasks", len(bytes))
	switch owners := slices.Sorted(maps.Keys(bytes)); {
	case r.job.NumWorkers() == 1 && len(r.job.servers()) == 0:
		on = "in this process"
	case len(owners) == 1:
		on = "on " + owners[0]
	case len(owners) <= 4:
		on = "on"
		for _, owner := range owners {
			on += fmt.Sprintf(" %s %s,", owner, size(bytes[owner]))
		}
		on = strings.TrimSuffix(on, ",")
	}
	return fmt.Sprintf("variable %q %v: %s, %s, %s", v.Name, v.Shape, kind, size(total), on)
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
