package trainer

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/telemetry"
)

// maxReported is how many variables the start report lists.
const maxReported = 100

// report prints how a job trains, and which tasks hold each variable.
func (t *training) report(log *printer, servers int, library string) {
	d := &t.declared
	arch, why := t.architecture(servers)
	if why != "" {
		why = " (" + why + ")"
	}
	total := 0
	for _, v := range d.Variables {
		total += variableSize(v)
	}
	workers := count(len(d.Workers), "worker")
	if d.VirtualWorkers != len(d.Workers) {
		workers += fmt.Sprintf(" for %d virtual ones", d.VirtualWorkers)
	}
	log.Logf(slog.LevelInfo, "%s, %s%s, %s, batch %d (%s each), %s of %s, %s, loss %s, %s",
		workers, arch, why, d.Sync, d.Batch, count(t.rows, "row"), count(len(d.Variables), "variable"),
		size(total), d.Optimizer.Rule, t.model.LossKind, library)
	for i, v := range d.Variables {
		level := slog.LevelInfo
		if i >= maxReported {
			level = slog.LevelDebug
		}
		log.Logf(level, "%s", t.residence(i, v, servers))
	}
	if more := len(d.Variables) - maxReported; more > 0 {
		log.Logf(slog.LevelInfo, "and %s, which PLX_LOG_LEVEL=debug lists", count(more, "more variable"))
	}
}

// residence describes a variable, and names the tasks that hold it.
func (t *training) residence(i int, v layout.Variable, servers int) string {
	bytes, total := map[string]int{}, 0
	unit, kind := v.Dtype.Size(), "dense"
	if v.Sparse != nil {
		unit, kind = variableSize(v)/v.Shape[0], "sparse"
	}
	for _, p := range t.declared.Pieces {
		if p.Variable == i {
			bytes[t.declared.Holders[p.Holder].String()] += p.Count * unit
			total += p.Count * unit
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
	return fmt.Sprintf("variable %q %v: %s, %s, %s", v.Name, v.Shape, kind, size(total), on)
}

// exportGraph writes the model's graph to the file that the user wants it in.
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
