// Package autotune decides, while training goes on, which shard holder has
// which rows of the embedding tables, and reports what every variable sends.
//
// The workers meet after steps that all of them know beforehand. At a meeting
// they add up their statistics, the chief decides, and all workers carry out its
// plan. The chief tries numbers of partitions and keeps the fastest (package
// partition), gives every holder about as many bytes to carry, and with --arch
// auto chooses between servers and workers (package cost). The plan changes
// where rows are. It changes no value.
//
//	pieces, err := autotune.Place(declaration, least, most, partitions) // before the first step
//	t := autotune.New(autotune.Config{...})                       // nil: nothing can be tuned
//	... every step: t.Pulled(table, rows), t.Gradient(step, variable, bytes)
//	moved, err := t.After(ctx, steps, took)                       // after every step
//	t.Close()                                                     // after the last one
//
// # What it refuses
//
// It tunes synchronous training only: in other modes there is no step after
// which all workers can meet. It moves no rows itself: [Holders] does.
package autotune

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/plx-run/plx/trainer/autotune/cost"
	"github.com/plx-run/plx/trainer/collective"
	"github.com/plx-run/plx/trainer/exchange/client"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/timeline"
)

// Holders are the shard holders, as this worker reaches them.
type Holders interface {
	// Room asks every holder whether it has the memory for its pieces. The error
	// is an [transition.RoomError] if one has not.
	Room(ctx context.Context, pieces []layout.Piece) error
	// Repartition moves rows to the holders of pieces. Every worker calls it after
	// the same step.
	Repartition(ctx context.Context, pieces []layout.Piece) error
	// Volumes returns what this worker has exchanged since it connected.
	Volumes() []client.Volume
}

// Config is what a tuner needs. All of it but Chief is the same on every worker.
type Config struct {
	Chief       bool               // this worker decides and reports
	Declaration layout.Declaration // its last variables are the embedding tables
	Least       []int              // by table: fewest partitions, see [Place]
	Most        int                // most partitions that a search tries; 0 means as many as make sense
	Steps       int                // number of steps made before this run
	Cluster     cost.Cluster       // names the host of each worker and server
	Holders     Holders
	Workers     *collective.Group                // collectives among all workers
	Trace       *timeline.Recorder               // gets the times at which rows moved; nil records nothing
	Logf        func(slog.Level, string, ...any) // the chief's log

	// The user's choices.
	Meet       int  // number of steps of this run before the first meeting, if rows can move
	Report     int  // number of steps of this run before the chief reports what was sent
	Auto       bool // tables may go from servers to workers and back
	Search     bool // find the number of partitions that makes steps fastest
	Partitions int  // number of partitions of tables that have a partitioner; 0 means that the search finds it
	BySize     bool // balance holders by the size of their pieces, not by what travels
}

// Tuner is one worker's part. A nil Tuner does nothing.
type Tuner struct {
	config     Config // its Declaration.Pieces follow every move: they are the present placement
	meet       int    // number of steps after which the workers meet next; 0 means never
	met        int    // number of steps made at the last meeting, or before this run
	reported   bool   // this worker has given its part of the report
	statistics *statistics
	planner    *planner // decides at meetings; nil unless this worker is the chief
}

// plan is what the chief decides at a meeting.
type plan struct {
	Meet   int            `json:"meet"`             // number of steps after which the workers meet next; 0 means never
	Pieces []layout.Piece `json:"pieces,omitempty"` // the new placement; empty means that nothing moves
}

// maxPlan bounds a plan in bytes.
const maxPlan = 16 << 20

// New returns a tuner that looks at rows if they can move, and only reports
// otherwise. It returns nil if the workers do not take their steps together, or if
// nothing travels.
func New(c Config) *Tuner {
	if !c.Declaration.Sync.InStep() || len(c.Cluster.Workers)+len(c.Cluster.Servers) == 1 {
		return nil
	}
	t := &Tuner{config: c, met: c.Steps, meet: c.Steps + c.Report}
	t.statistics = newStatistics(&t.config)
	if c.Declaration.Movable {
		t.meet = c.Steps + c.Meet
	}
	if c.Chief {
		t.planner = newPlanner(&t.config)
	}
	return t
}

// Meets reports whether the workers meet after so many steps. Rows for the step
// after a meeting must not be requested before it: other holders may have them.
func (t *Tuner) Meets(steps int) bool { return t != nil && steps == t.meet }

// Pulled counts the rows of a table that a step has pulled.
func (t *Tuner) Pulled(table int, rows []int64) {
	if t != nil && t.meet > 0 {
		t.statistics.counts[table].Add(rows)
		t.statistics.touched[table] += float64(len(rows))
	}
}

// Gradient notes how many rows of a dense variable's gradient are not zero. It
// looks in one early step only. Several goroutines may call it.
func (t *Tuner) Gradient(step, variable int, gradient []byte) {
	if t != nil && step == t.config.Steps+filledAt {
		t.statistics.fills(variable, t.config.Declaration.Variables[variable], gradient)
	}
}

// After holds a meeting if one is due. Every worker calls it after every step
// that all workers took; took is the time of the step. It returns the new
// placement if rows have moved, else nil.
func (t *Tuner) After(ctx context.Context, steps int, took time.Duration) (moved []layout.Piece, err error) {
	if t == nil {
		return nil, nil
	}
	if t.planner != nil && !t.planner.settled {
		t.planner.times = append(t.planner.times, took)
	}
	if steps != t.meet {
		return nil, nil
	}
	p, err := t.confer(ctx, steps)
	if err == nil && len(p.Pieces) > 0 {
		err = t.move(ctx, steps, p.Pieces)
	}
	if err != nil {
		return nil, fmt.Errorf("meeting after step %d: %w", steps, err)
	}
	t.meet, t.met = p.Meet, steps
	return p.Pieces, nil
}

// Close reports a search that training was too short for.
func (t *Tuner) Close() {
	if t != nil && t.planner != nil {
		t.planner.unfinished()
	}
}

// confer adds up the statistics of all workers and returns the chief's plan.
func (t *Tuner) confer(ctx context.Context, steps int) (p plan, err error) {
	window := steps - t.met
	counted, exchanged := t.statistics.take(), t.statistics.exchanged(t.config.Holders.Volumes())
	if err := t.config.Workers.AllReduce(ctx, counted); err != nil {
		return p, err
	}
	sum := t.statistics.split(counted)
	if steps >= t.config.Steps+t.config.Report && !t.reported {
		t.reported = true
		if err := t.report(ctx, window, sum, exchanged); err != nil {
			return p, err
		}
	}
	var told []byte
	if t.planner != nil {
		if p, err = t.planner.decide(ctx, steps, sum); err != nil {
			return p, err
		}
		if told, err = json.Marshal(p); err != nil {
			return p, err
		}
	}
	all, err := t.config.Workers.AllGatherBytes(ctx, told, maxPlan)
	if err != nil {
		return p, err
	}
	if err = json.Unmarshal(all[0], &p); err != nil {
		return p, fmt.Errorf("the chief's plan: %w", err)
	}
	return p, nil
}

// report has the chief report what all workers exchanged in a window of steps.
func (t *Tuner) report(ctx context.Context, window int, sum totals, exchanged []float64) error {
	var all []float64
	if t.planner != nil {
		all = make([]float64, len(exchanged)*len(t.config.Declaration.Workers))
	}
	if err := t.config.Workers.Gather(ctx, exchanged, all, 0); err != nil {
		return err
	}
	if t.planner != nil {
		t.config.report(window, sum, all)
	}
	return nil
}

// move carries out a plan.
func (t *Tuner) move(ctx context.Context, steps int, pieces []layout.Piece) error {
	begin := time.Now()
	if err := t.config.Holders.Repartition(ctx, pieces); err != nil {
		return err
	}
	t.config.Declaration.Pieces = pieces
	if t.planner != nil {
		t.planner.moved(steps, time.Since(begin))
	}
	t.config.Trace.Span("step", fmt.Sprintf("repartition after step %d", steps), begin, time.Now())
	return nil
}
