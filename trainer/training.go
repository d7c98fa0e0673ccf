package trainer

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/autotune"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/exchange"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/replica"
	"github.com/plx-run/plx/trainer/timeline"
	"gorgonia.org/gorgonia"
)

// training is what one worker trains: its graphs, and the declaration that all
// workers must agree on.
type training struct {
	config    *config.Config
	settings  settings
	optimizer Optimizer
	rows      int            // of one virtual worker's part of a batch
	lo, hi    int            // virtual workers of this worker
	model     Model          // of the first graph
	group     *replica.Group // the graphs
	declared  layout.Declaration
}

// build builds n graphs, on the same variables.
func (t *training) build(build Build, n int) (err error) {
	t.group, err = replica.NewGroup(func(g *gorgonia.ExprGraph, rows int) (replica.Model, error) {
		m, err := build(g, rows)
		if err != nil {
			return replica.Model{}, fmt.Errorf("build the model: %w", err)
		}
		if err := m.check(); err != nil {
			return replica.Model{}, err
		}
		if t.model.Loss == nil {
			t.model = m
		}
		return m.nodes(), nil
	}, t.rows, n)
	return err
}

// declare says what is trained.
func (t *training) declare() (err error) {
	d := &t.declared
	d.Optimizer, d.Sum, d.Metrics = t.optimizer.Settings, t.model.LossKind == Sum, len(t.model.Metrics)
	d.Batch, d.Clip = t.settings.batch, t.settings.clip
	d.Norm = t.settings.norm || t.config.SummaryDir != "" && !d.Sync.Competes()
	d.BucketBytes, d.Exact = t.config.BucketBytes, t.config.Exact()
	d.StartMillis, d.SilenceMillis = t.settings.start.Milliseconds(), t.settings.peer.Milliseconds()
	if d.Variables, err = t.model.declared(); err != nil {
		return err
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
	if t.settings.ending == EndTogether {
		return fmt.Errorf("EndTogether with --sync %s: only in sync is there a step that all workers take together; use JoinOthers or WaitForAll", d.Sync)
	}
	return nil
}

// place says which task holds each variable. hosts are the ranks of the workers
// of each host, nil if none adds gradients for others.
func (t *training) place(servers int, hosts []layout.Range) (err error) {
	d := &t.declared
	arch, _ := t.architecture(servers)
	d.Movable = len(t.model.Embeddings) > 0 && d.Sync.InStep() && len(d.Workers)+servers > 1
	if err := d.Place(arch, servers, t.config.PartitionBytes); err != nil {
		return err
	}
	if d.Sync.InStep() && slices.ContainsFunc(d.Holders, func(t cluster.Task) bool { return t.Role == cluster.PS }) {
		d.Hosts = hosts
	}
	if d.Pieces, err = autotune.Place(d, t.partitioners(), t.config.Partitions); err != nil {
		return err
	}
	return d.Check()
}

// architecture is where variables are held, and why it is not what the user chose.
func (t *training) architecture(servers int) (arch policy.Architecture, why string) {
	dense := len(t.model.Variables)+len(t.model.States) > 0
	return t.config.Place(len(t.declared.Workers), servers, len(t.model.Embeddings) > 0, dense)
}

// partitioners are the fewest partitions of each table, 0 for one without a
// partitioner.
func (t *training) partitioners() (least []int) {
	for _, e := range t.model.Embeddings {
		least = append(least, e.Partitioner.least)
	}
	return least
}

// feeds is the half-open range of a global batch's rows that this worker feeds.
func (t *training) feeds() (from, to int) { return t.lo * t.rows, t.hi * t.rows }

// moved notes that variables have other holders.
func (t *training) moved(pieces []layout.Piece) { t.declared.Pieces = pieces }

// tuning describes training that has so many steps to package autotune.
func (t *training) tuning(n *network, client *exchange.Client, steps int, trace *timeline.Recorder) autotune.Config {
	c := t.config
	return autotune.Config{
		Options: autotune.Options{
			Meet: c.FirstMeeting, Report: c.Report, Auto: c.Arch == "auto", Search: c.SearchPartitions, Partitions: c.Partitions,
			BySize: c.Balance == "bytes", Folder: c.ProfileDir,
		},
		Chief: n.contract.Task.IsChief(), Declaration: t.declared, Least: t.partitioners(), Steps: steps, Cluster: n.machines(),
		Holders: client, Workers: n.group, Trace: trace, Logf: n.log.Logf,
	}
}
