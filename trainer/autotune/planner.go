package autotune

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/plx-run/plx/trainer/autotune/cost"
	"github.com/plx-run/plx/trainer/autotune/partition"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
)

// For each number of partitions that it tries, the planner ignores the first
// few steps (settling is their number), because they are slower. It then
// measures for about sampleTime, but at least leastSteps and at most mostSteps
// steps.
const (
	settling   = 2
	leastSteps = 10
	mostSteps  = 40
	sampleTime = 500 * time.Millisecond
)

// planner makes the decisions of the tuner. Only the chief (worker 0) has a
// planner.
type planner struct {
	config   *Config
	placer   placer
	division division
	counts   [][]float64       // by table and bucket (range of rows): number of rows transferred from the start until the last meeting, at which the workers sum their counts; nil before the first meeting
	steps    int               // number of steps made when the workers last summed their statistics (counts of used rows)
	search   *partition.Search // search for the fastest number of partitions; nil if the user has set the number or no row can move
	trial    int               // number of partitions that is being measured now; 0 before the first measurement
	times    []time.Duration   // durations of the steps since the chief's last plan
	typical  time.Duration     // median duration of a step at the last measured number of partitions; 0 if none was measured
	settled  bool              // true if the final placement is decided, so that no row moves any more
}

func newPlanner(c *Config) *planner {
	p := &planner{config: c, placer: placer{&c.Declaration, c.Least, c.Most}, steps: c.Steps, settled: !c.Declaration.Movable}
	if p.settled {
		return p
	}
	p.division = p.placer.first(c.Partitions)
	if start, least, most := p.placer.bounds(p.division); c.Search && c.Partitions == 0 && most > least && start > 1 {
		p.search = partition.NewSearch(start, least, most)
	} else if c.BySize && !c.Auto {
		p.settled = true
	}
	return p
}

// decide returns the plan for the next steps: which rows move, and when the
// workers sum their statistics again. sum has the statistics of all workers
// since they last summed them.
func (p *planner) decide(ctx context.Context, steps int, sum totals) (next plan, err error) {
	window := steps - p.steps
	p.learn(steps, sum)
	if p.config.Auto && !p.settled {
		p.route(sum, window)
	}
	switch {
	case p.settled:
	case p.search == nil:
		p.settled = true
		next.Pieces, err = p.place(ctx, p.division)
	default:
		p.sample()
		next.Pieces, err = p.try(ctx)
	}
	_, full := errors.AsType[*transition.RoomError](err)
	if full {
		p.config.Logf(slog.LevelWarn, "rows stay where they are: %v", err)
		err = nil
	}
	if full || slices.Equal(next.Pieces, p.config.Declaration.Pieces) {
		next.Pieces = nil
	}
	p.times = p.times[:0]
	next.Meet = p.meeting(steps)
	return next, err
}

// learn adds the workers' counts since the last meeting (at which they sum
// their statistics) to p.counts.
func (p *planner) learn(steps int, sum totals) {
	if p.counts == nil {
		for _, counts := range sum.counts {
			p.counts = append(p.counts, make([]float64, len(counts)))
		}
	}
	for i, counts := range sum.counts {
		for k, n := range counts {
			p.counts[i][k] += n
		}
	}
	p.steps = steps
}

// meeting returns the number of steps after which the workers next sum their
// statistics (counts of used rows); 0 means never again.
func (p *planner) meeting(steps int) int {
	report := p.config.Steps + p.config.Report
	switch {
	case !p.settled:
		return steps + settling + min(max(int(sampleTime/max(p.typical, 1)), leastSteps), mostSteps)
	case steps < report:
		return report
	}
	return 0
}

// place returns the pieces of all tables for the division d. It fails with a
// [transition.RoomError] if a holder does not have the memory for its pieces.
func (p *planner) place(ctx context.Context, d division) ([]layout.Piece, error) {
	counts := p.counts
	if p.config.BySize {
		counts = nil
	}
	pieces := p.placer.pieces(d, counts, max(p.steps-p.config.Steps, 1))
	return pieces, p.config.Holders.Room(ctx, pieces)
}

// sample passes the durations of the steps since the last meeting (at which
// the workers sum their statistics) to the search for the best number of
// partitions. It omits the first few steps, whose number is settling, because
// they are slower.
func (p *planner) sample() {
	if len(p.times) <= settling {
		return
	}
	times := slices.Clone(p.times[settling:])
	slices.Sort(times)
	p.typical = times[len(times)/2]
	if p.trial > 0 {
		p.search.Add(p.trial, times)
	}
}

// try returns the pieces for the next number of partitions to measure. Numbers
// for which a holder lacks memory are skipped. At the end of the search, try
// returns the pieces for the fastest number.
func (p *planner) try(ctx context.Context) ([]layout.Piece, error) {
	for {
		parts, more := p.search.Next()
		if !more {
			return p.choose(ctx)
		}
		pieces, err := p.place(ctx, p.placer.cut(p.division, parts))
		if _, full := errors.AsType[*transition.RoomError](err); full {
			p.search.Skip(parts, err.Error())
			continue
		}
		p.trial = parts
		return pieces, err
	}
}

// choose ends the search, logs its result, and returns the pieces for the
// fastest number of partitions.
func (p *planner) choose(ctx context.Context) ([]layout.Piece, error) {
	p.settled = true
	result := p.search.Result()
	p.config.log(result.Lines())
	if result.P == 0 {
		return nil, nil
	}
	p.division = p.placer.cut(p.division, result.P)
	return p.place(ctx, p.division)
}

// unfinished logs the result so far, if training ended before the search.
func (p *planner) unfinished() {
	if p.search == nil || p.settled {
		return
	}
	p.config.Logf(cluster.VerboseLevel, "training ended before the search for partitions did:")
	p.config.log(p.search.Result().Lines())
}

// moved logs that rows have moved. While the search still tries numbers of
// partitions, it logs at debug level.
func (p *planner) moved(steps int, took time.Duration) {
	level := slog.LevelDebug
	if p.settled {
		level = cluster.VerboseLevel
	}
	p.config.Logf(level, "rows moved between step %d and %d, in %v", steps-1, steps, took.Round(time.Millisecond))
}

// route chooses for each table whether servers or workers hold it, by the
// number of rows that workers use per step. If one worker of each host sums
// the gradients of its host, route leaves tables on the servers, because the
// tasks that sum are chosen only once, at the start.
func (p *planner) route(sum totals, window int) {
	c := p.config
	if hosts := len(c.Declaration.Hosts); hosts > 0 && hosts < len(c.Declaration.Workers) {
		c.Logf(cluster.VerboseLevel, "--arch auto: tables stay on servers, because the workers of each host sum their gradients first")
		return
	}
	for i, touched := range c.touched(sum, window) {
		v := c.describe(p.placer.tables()+i, touched)
		chosen, why := cost.Choose(v)
		role := cluster.PS
		if chosen == cost.AllReduce {
			role = cluster.Worker
		}
		if role != p.division.roles[i] && len(p.placer.holders(role)) > 0 {
			c.Logf(cluster.VerboseLevel, "--arch auto: variable %q is exchanged by %s from now on: %s", v.Name, chosen, why)
			p.division.roles[i] = role
		}
	}
}
