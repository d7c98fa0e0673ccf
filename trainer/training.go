package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/trainer/autotune"
	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/embedding"
	"github.com/plx-run/plx/trainer/exchange/client"
	"github.com/plx-run/plx/trainer/executor/gpu"
	"github.com/plx-run/plx/trainer/hooks"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/replica"
	"github.com/plx-run/plx/trainer/resident"
	"github.com/plx-run/plx/trainer/rewrite"
	"github.com/plx-run/plx/trainer/telemetry"
	"github.com/plx-run/plx/trainer/timeline"
	"github.com/plx-run/plx/trainer/wire"
	"gorgonia.org/gorgonia"
)

// Parallelize prepares a single-device model for training on all workers of
// the job, and returns the session of this worker. It assigns each variable to
// a shard holder as --arch says, and starts every worker with the chief's
// (worker 0's) values. It blocks until all workers have called Parallelize,
// but no longer than Config.StartTimeout. A job can have only one session per
// worker.
//
// Fields that are set in configs override those passed to Main. Command-line
// flags override both.
//
// Parallelize returns an error if the model is invalid or differs between
// workers, so that no step fails for that reason.
func (j *Job) Parallelize(ctx context.Context, build Build, opt Optimizer, configs ...Config) (*Session, error) {
	s, err := j.parallelize(ctx, build, opt, configs)
	if err != nil {
		return nil, fmt.Errorf("parallelize: %w", err)
	}
	return s, nil
}

func (j *Job) parallelize(ctx context.Context, build Build, opt Optimizer, configs []Config) (*Session, error) {
	if err := wire.CheckHost(); err != nil {
		return nil, err
	}
	if build == nil {
		return nil, errors.New("there is no model to build: Build is nil")
	}
	if !j.parallelized.CompareAndSwap(false, true) {
		return nil, errors.New("the job has a session already, or has tried to connect one")
	}
	t, err := j.newTraining(build, opt, configs)
	if err != nil {
		j.parallelized.Store(false) // no other task knows of this attempt, so the program may call Parallelize again
		return nil, err
	}
	if j.IsChief() {
		err = t.exportGraph(j.log)
	}
	if err != nil {
		return nil, err
	}
	out, err := telemetry.Open(t.config, j.contract.Task, j.log.Logf)
	if err != nil {
		j.parallelized.Store(false)
		return nil, err
	}
	described, err := t.model.describe()
	if err == nil {
		err = out.Graph(described)
	}
	if err != nil {
		return nil, errors.Join(err, out.Close(0))
	}
	s, err := j.connect(ctx, t, out)
	if err != nil {
		return nil, errors.Join(err, out.Close(0))
	}
	j.session.Store(s)
	j.progress.steps.Store(int64(s.step))
	if j.IsChief() {
		t.report(j.log, j.servers(), j.host.describe(t.group.DeviceBytes()))
	} else if j.host.device != nil {
		j.log.Logf(cluster.VerboseLevel, "%s", j.host.describe(t.group.DeviceBytes()))
	}
	if j.IsChief() && j.tell != nil && j.NumWorkers() > 1 && t.declared.Sync.ToleratesLoss() {
		j.tell(cluster.ControlMessage{Kind: cluster.ToleratesLoss}) // an error is ignored, because serveAgent notices a broken connection to the agent
	}
	return s, nil
}

// newTraining builds the model and the declaration, which describes the
// training to the other tasks. It does not communicate with other tasks.
func (j *Job) newTraining(build Build, opt Optimizer, configs []Config) (t *training, err error) {
	c, err := j.config.Complete(configs...)
	if err != nil {
		return nil, err
	}
	if err := c.Suits(j.NumWorkers(), j.servers()); err != nil {
		return nil, err
	}
	t = &training{config: &c, optimizer: opt, own: j.part(j.WorkerID()), hooks: hooks.New(c.Hooks, j.IsChief())}
	if t.rows, err = c.Rows(j.virtual); err != nil {
		return nil, err
	}
	if err := t.build(build, c.ReplicaCount(t.own.Len(), j.LocalWorldSize()), j.host.device); err != nil {
		return nil, err
	}
	if err := t.checkKernels(j.log, j.IsChief()); err != nil {
		return nil, err
	}
	if j.IsChief() {
		t.reportGraph(j.log)
	}
	mode, err := c.Mode(j.NumWorkers(), j.servers())
	if err != nil {
		return nil, err
	}
	t.declared.Sync, t.declared.VirtualWorkers = mode, j.virtual
	t.declared.Hooks = t.hooks.Describe()
	t.declared.Fingerprint, t.declared.Device = j.host.numerics, j.host.kind()
	for rank := range j.NumWorkers() {
		t.declared.Workers = append(t.declared.Workers, j.part(rank))
	}
	if err := t.declare(); err != nil {
		return nil, err
	}
	return t, t.place(j.servers(), j.network.workersByHost())
}

// connect restores the checkpoint that training resumes from, connects to the
// shard holders and returns the session. out records steps for summaries and
// timelines.
func (j *Job) connect(ctx context.Context, t *training, out *telemetry.Recorder) (*Session, error) {
	if err := t.restore(ctx, j.network); err != nil {
		return nil, err
	}
	carried, err := t.carries(ctx, j.network)
	if err != nil {
		return nil, err
	}
	defer j.log.waiting(func() string { return "Parallelize" })()
	memory := t.group.Memory()
	if err := t.initFrom(ctx, memory, j.IsChief(), j.log); err != nil {
		return nil, err
	}
	kept, where, err := resident.Keep(t.group, &t.declared, resident.Choice{
		Everything: t.config.CheckNumerics, Hooked: t.hooks.HaveGradients(), Never: j.host.updates,
	})
	if err != nil {
		return nil, err
	}
	t.updated = where
	first, err := t.model.first(j.IsChief())
	if err != nil {
		return nil, err
	}
	c, err := client.Connect(ctx, client.Config{
		Peers:       j.network.peers(),
		Listener:    j.network.listener,
		Cluster:     j.contract.Cluster,
		Declaration: t.declared,
		Values:      append(slices.Clone(memory), make([][]byte, len(t.model.Embeddings))...), // nil for embedding tables, because only shard holders keep their rows
		First:       append(make([][]byte, len(memory)), first...),
		Arrived:     resident.Renewer(t.group, &t.declared),
		Home:        kept.Home(),
		Trace:       out.Trace(),
		Checkpoints: j.network.checkpoints(),
	})
	if err != nil {
		return nil, err
	}
	kept.Hold(c.Held())
	step := int(c.Step())
	return &Session{
		job: j, training: t, client: c, telemetry: out, from: step, step: step,
		variables: variables{t.declared.Variables, memory, kept, c.Rows},
		saving:    newSaving(t, j.network, c, carried),
		worker: &worker{
			training: t, name: j.contract.Task.String(), client: c, telemetry: out, resident: kept, carriage: carried,
			tables: embedding.New(t.model.tables(), c.Rows, t.group.First(), t.own.Len(), t.declared.Sync.InStep()),
			tuner:  autotune.New(t.tuning(j.network, c.Placement, step, out.Trace())),
		},
	}, nil
}

// training holds what one worker trains: the configuration, the replicas of
// the graph, and the declaration, which must be the same on all workers.
type training struct {
	config    *config.Effective
	optimizer Optimizer
	hooks     *hooks.Runner        // calls the program's hooks; nil if it has none
	rows      int                  // number of rows in the global batch for each virtual worker
	own       layout.Range         // range of the virtual workers that this worker computes
	model     Model                // nodes of the first replica's graph, after rewriting
	group     *replica.Group       // this worker's replicas (copies) of the graph
	made      rewrite.Made         // result of rewriting the program's graph: replaced operations, new tables
	frozen    gorgonia.Nodes       // nodes with a value and a gradient that the model lists neither as variables nor as frozen; reported in a warning
	declared  layout.Declaration   // description of the training for all tasks; newTraining and restore fill it
	resumed   *checkpoint.Manifest // checkpoint from which training resumes; nil if it begins from scratch
	updated   string               // which device updates the variables, for the log line at the start; empty without a GPU
}

// build builds n replicas of the model's graph that share their variables. The
// parameter on is the GPU that computes; nil means the CPU.
func (t *training) build(build Build, n int, on *gpu.Device) (err error) {
	var compared *repeatable
	if t.config.Exact() {
		compared = &repeatable{}
	}
	t.group, err = replica.NewGroup(func(g *gorgonia.ExprGraph, rows int) (replica.Model, error) {
		m, err := build(g, rows)
		if err != nil {
			return replica.Model{}, fmt.Errorf("build the model: %w", err)
		}
		if err := m.check(); err != nil {
			return replica.Model{}, err
		}
		unlisted, err := m.nodes().Unlisted()
		if err != nil {
			return replica.Model{}, err
		}
		if err := compared.see(slices.Concat(m.kept(), m.Frozen, unlisted), m.Embeddings); err != nil {
			return replica.Model{}, err
		}
		made, err := rewrite.Model(m.nodes(), !t.config.NoFindSparse)
		if err != nil {
			return replica.Model{}, err
		}
		if t.model.Loss == nil { // only the first graph is checked: graphs built later for evaluations need no LossKind
			if err := m.checkMean(rows); err != nil {
				return replica.Model{}, err
			}
			t.model, t.made, t.frozen = m.with(made), made, unlisted
		}
		return made.Model, nil
	}, t.rows, n, on)
	if err == nil && n == 1 && compared != nil {
		err = t.group.Rebuild()
	}
	return err
}

// declare fills in the declaration, which describes the training to all tasks.
// It returns an error if options contradict each other.
func (t *training) declare() (err error) {
	d := &t.declared
	d.Optimizer, d.Sum, d.Metrics = t.optimizer.Settings, t.model.LossKind == Sum, len(t.model.Metrics)
	d.Batch, d.Clip = t.config.GlobalBatch, t.config.ClipNorm
	d.Norm = t.config.MeasureNorm || t.config.SummaryDir != "" && !d.Sync.WorkersCompete()
	d.BucketBytes, d.Exact = t.config.BucketBytes, t.config.Exact()
	d.StartMillis, d.SilenceMillis = t.config.StartTimeout.Milliseconds(), t.config.PeerTimeout.Milliseconds()
	if d.Variables, err = t.model.declared(t.config.CombineRows); err != nil {
		return err
	}
	for i, v := range d.Variables {
		if t.optimizer.Groups == nil || v.IsStatistic() {
			continue
		}
		g := t.optimizer.Groups(v.Name)
		d.Variables[i].RateFactor, d.Variables[i].NoDecay = g.RateFactor, g.NoDecay
	}
	if d.Model, err = t.model.digest(); err != nil {
		return fmt.Errorf("describe the model: %w", err)
	}
	if d.Sync.InStep() {
		return nil
	}
	if t.config.CheckParameters > 0 {
		return fmt.Errorf("--check-parameters with --sync %s: only in sync do all workers have the same variables at the same time", d.Sync)
	}
	if t.config.AtEndOfData == EndTogether {
		return fmt.Errorf("EndTogether with --sync %s: only in sync is there a step that all workers take together; use JoinOthers or WaitForAll", d.Sync)
	}
	return nil
}

// place assigns each variable, or part of a variable, to a shard holder. hosts
// are the ranks of the workers of each host; it is nil if every host has a
// single worker.
func (t *training) place(servers int, hosts []layout.Range) (err error) {
	d := &t.declared
	arch, _ := t.architecture(servers)
	d.Movable = len(t.model.Embeddings) > 0 && d.Sync.InStep() && len(d.Workers)+servers > 1
	if err := d.AssignPieces(arch, servers, t.config.PartitionBytes); err != nil {
		return err
	}
	if !t.config.NoLocalAggregation && d.Sync.InStep() && slices.ContainsFunc(d.Holders, func(t cluster.Task) bool { return t.Role == cluster.PS }) {
		d.Hosts = hosts
	}
	if d.Pieces, err = autotune.Place(d, t.partitioners(), t.config.MaxPartitions, t.config.Partitions); err != nil {
		return err
	}
	return d.Check()
}

// architecture returns which tasks hold the variables. If the result differs
// from --arch, why is the reason.
func (t *training) architecture(servers int) (arch policy.Architecture, why string) {
	sparse, dense := len(t.model.Embeddings) > 0, len(t.model.Variables)+len(t.model.States) > 0
	return policy.Choose(t.config.Arch, t.declared.Sync, len(t.declared.Workers), servers, sparse, dense)
}

// partitioners returns the minimum number of partitions of each table. It is 0
// for a table without a Partitioner.
func (t *training) partitioners() (least []int) {
	for _, e := range t.model.Embeddings {
		fewest := e.Partitioner.least
		if fewest > 0 {
			fewest = max(fewest, t.config.MinPartitions)
		}
		least = append(least, fewest)
	}
	return least
}

// feeds returns the half-open range of rows in a global batch that this worker
// must feed.
func (t *training) feeds() (from, to int) { return t.own.Lo * t.rows, t.own.Hi * t.rows }

// tuning returns the configuration of the autotuner. steps is the number of
// steps taken before this process started.
func (t *training) tuning(n *network, holders *client.Placement, steps int, trace *timeline.Recorder) autotune.Config {
	c := t.config
	return autotune.Config{
		TuneAfterSteps: c.TuneAfterSteps, Report: c.Report, Auto: c.Arch == "auto", Search: !c.NoSearchPartitions, Partitions: c.Partitions,
		BySize: c.Balance == "bytes", Chief: n.contract.Task.IsChief(), Declaration: t.declared, Least: t.partitioners(), Most: c.MaxPartitions, Steps: steps, Cluster: n.machines(),
		Holders: holders, Workers: n.group, Trace: trace, Logf: n.log.Logf,
	}
}

// reportGraph logs how the trainer changed the program's graph: which
// operations it replaced, which variables became tables, and which leaves are
// not trained.
func (t *training) reportGraph(log *printer) {
	if len(t.made.Replaced) > 0 {
		log.Logf(slog.LevelInfo, "gorgonia's operations that plx replaces with its own: %s; docs/models.md lists the differences", strings.Join(t.made.Replaced, ", "))
	}
	if len(t.made.Tables) > 0 {
		var names []string
		for _, n := range t.made.Tables {
			names = append(names, fmt.Sprintf("%q", n.Name()))
		}
		log.Logf(slog.LevelInfo, "tables, because only rows of them are looked up: %s; rows that a step does not look up stay as they are (--find-sparse=false makes them dense)", strings.Join(names, ", "))
	}
	for _, n := range t.frozen {
		log.Logf(slog.LevelWarn, "%q has a value and a gradient, but is not trained: list it in Model.Variables, or in Model.Frozen if it is to stay as it is", n.Name())
	}
	for _, why := range t.made.Dense {
		log.Logf(cluster.VerboseLevel, "rows are looked up of variable %s, so it is dense", why)
	}
}

// maxReported is the number of variables that the report at the start lists at
// level verbose. The report lists the remaining variables at level debug.
const maxReported = 100

// report logs how the job trains, and which tasks hold each variable. library
// describes the BLAS library and the GPU.
func (t *training) report(log *printer, servers int, library string) {
	d := &t.declared
	arch, why := t.architecture(servers)
	if why != "" {
		why = " (" + why + ")"
	}
	total := 0
	for _, v := range d.Variables {
		total += v.Bytes()
	}
	workers := plural.Count(len(d.Workers), "worker")
	if d.VirtualWorkers != len(d.Workers) {
		workers += fmt.Sprintf(" for %d virtual ones", d.VirtualWorkers)
	}
	log.Logf(cluster.VerboseLevel, "%s, %s%s, %s, batch %d (%s each), %s of %s, %s, loss %s, %s",
		workers, arch, why, d.Sync, d.Batch, plural.Count(t.rows, "row"), plural.Count(len(d.Variables), "variable"),
		size(total), d.Optimizer.Rule, t.model.LossKind, library+t.updated)
	if t.config.Digest && !d.Sync.InStep() {
		log.Logf(slog.LevelWarn, "--digest with --sync %s: workers do not wait for each other, so each run has other weights and another digest", d.Sync)
	}
	for i, v := range d.Variables {
		level := cluster.VerboseLevel
		if i >= maxReported {
			level = slog.LevelDebug
		}
		log.Logf(level, "%s", t.residence(i, v, servers))
	}
	if more := len(d.Variables) - maxReported; more > 0 {
		log.Logf(cluster.VerboseLevel, "and %s, which PLX_LOG_LEVEL=debug lists", plural.Count(more, "more variable"))
	}
}

// residence returns a log line for the i-th variable, with the tasks that hold
// it and the size of each task's part.
func (t *training) residence(i int, v layout.Variable, servers int) string {
	bytes := map[string]int{}
	kind := "dense"
	if v.Sparse != nil {
		kind = "sparse"
	}
	for _, p := range t.declared.Pieces {
		if p.Variable == i {
			bytes[t.declared.Holders[p.Holder].String()] += p.Count * v.UnitBytes()
		}
	}
	on := fmt.Sprintf("cut over %d tasks", len(bytes))
	switch holders := slices.Sorted(maps.Keys(bytes)); {
	case len(t.declared.Workers) == 1 && servers == 0:
		on = "in this process"
	case len(holders) == 1:
		on = "on " + holders[0]
	case len(holders) <= 4:
		on = "on"
		for _, holder := range holders {
			on += fmt.Sprintf(" %s %s,", holder, size(bytes[holder]))
		}
		on = strings.TrimSuffix(on, ",")
	}
	return fmt.Sprintf("variable %q %v: %s, %s, %s", v.Name, v.Shape, kind, size(v.Bytes()), on)
}

// exportGraph writes the model's graph to the file of --export-graph.
func (t *training) exportGraph(log *printer) error {
	path := t.config.ExportGraph
	if path == "" {
		return nil
	}
	described, err := t.model.describe()
	if err == nil {
		err = described.Save(path)
	}
	if err != nil {
		return fmt.Errorf("--export-graph: %w", err)
	}
	log.Logf(slog.LevelInfo, "the graph is in %s", telemetry.Whole(path))
	return nil
}
