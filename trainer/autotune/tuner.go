// Package autotune moves rows of embedding tables between shard holders (the
// tasks that store variables) during training, to make steps faster. It also
// reports how many bytes each variable transfers.
//
// After certain steps, which all workers know in advance, the workers meet:
// they sum their statistics, the chief (worker 0) decides on a plan, and all
// workers carry out the plan. The chief measures several numbers of partitions
// and keeps the fastest (package partition). It balances the bytes that the
// holders transfer. With --arch auto it also chooses between servers and
// workers as holders (package cost). A plan changes where rows are stored,
// never their values.
//
//	pieces, err := autotune.Place(declaration, least, most, partitions) // before the first step
//	t := autotune.New(autotune.Config{...})                       // nil: nothing can be tuned
//	... every step: t.Pulled(table, rows), t.Gradient(step, variable, bytes)
//	moved, err := t.After(ctx, steps, took)                       // after every step
//	t.Close()                                                     // after the last one
//
// # What it refuses
//
// It tunes only synchronous training, because in other modes the workers are
// not at the same step. It does not move rows itself; [Holders] does.
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

// Holders gives this worker access to the shard holders, the tasks that store
// variables.
type Holders interface {
	// Room asks every holder whether it has the memory for its share of
	// pieces. If a holder lacks memory, the error is a [transition.RoomError].
	Room(ctx context.Context, pieces []layout.Piece) error
	// Repartition moves rows to the holders that the parameter pieces names.
	// All workers must call Repartition after the same step.
	Repartition(ctx context.Context, pieces []layout.Piece) error
	// Volumes returns the bytes that this worker has sent to and received from
	// each holder since it connected.
	Volumes() []client.Volume
}

// Config has the settings of a [Tuner]. All workers must have the same, except
// for Chief, Holders, Workers, Trace and Logf.
type Config struct {
	Chief       bool               // true in the chief (worker 0), which makes the plans and reports
	Declaration layout.Declaration // variables and their pieces; the last len(Least) variables are the embedding tables
	Least       []int              // by table: smallest number of partitions allowed, see [Place]
	Most        int                // largest number of partitions that a search tries; 0 means a default per shard holder
	Steps       int                // number of steps made before this run, if training resumes from a checkpoint
	Cluster     cost.Cluster       // the host of each worker and server; determines which bytes cross the network
	Holders     Holders
	Workers     *collective.Group                // collective operations (all-reduce, gather) among all workers
	Trace       *timeline.Recorder               // records when rows were moved; nil records nothing
	Logf        func(slog.Level, string, ...any) // writes a line to the chief's log

	// Settings that the user chooses.
	TuneAfterSteps int  // number of steps of this run before the workers first sum their statistics of used rows, and may move rows
	Report         int  // number of steps of this run before the chief reports the transferred bytes
	Auto           bool // true to move tables from servers to workers or back, if that saves bytes
	Search         bool // true to search for the number of partitions that makes steps fastest
	Partitions     int  // fixed number of partitions for tables that have a partitioner; 0 means that it is not fixed
	BySize         bool // true to balance holders by the size of their pieces, false by the bytes that they transfer
}

// Tuner tunes the placement of embedding tables. Each worker has one. A nil
// Tuner does nothing.
type Tuner struct {
	config     Config // settings; Declaration.Pieces is updated after each move
	meet       int    // number of steps after which the workers next sum their statistics (counts of used rows); 0 means never
	met        int    // number of steps made when the workers last summed their statistics; before the first sum, the number of steps made before this run
	reported   bool   // true if this worker has sent its numbers for the report of transferred bytes
	statistics *statistics
	planner    *planner // makes the plans; nil unless this worker is the chief
}

// plan is what the chief (worker 0) decides after the workers have summed
// their statistics. All workers receive it and carry it out.
type plan struct {
	Meet   int            `json:"meet"`             // number of steps after which the workers sum their statistics (counts of used rows) again; 0 means never
	Pieces []layout.Piece `json:"pieces,omitempty"` // the new pieces of all variables; empty means that no row moves
}

// maxPlan is the maximal size of an encoded plan in bytes.
const maxPlan = 16 << 20

// New returns a Tuner. If the declaration does not let rows move, the Tuner
// only reports transferred bytes. New returns nil if training is not
// synchronous, or if the job has only one task.
func New(c Config) *Tuner {
	if !c.Declaration.Sync.InStep() || len(c.Cluster.Workers)+len(c.Cluster.Servers) == 1 {
		return nil
	}
	t := &Tuner{config: c, met: c.Steps, meet: c.Steps + c.Report}
	t.statistics = newStatistics(&t.config)
	if c.Declaration.Movable {
		t.meet = c.Steps + c.TuneAfterSteps
	}
	if c.Chief {
		t.planner = newPlanner(&t.config)
	}
	return t
}

// Meets reports whether the workers sum their statistics and may move rows
// after this number of steps. If it returns true, the caller must not request
// rows for the next step before [Tuner.After] returns, because the rows may
// move to other holders.
func (t *Tuner) Meets(steps int) bool { return t != nil && steps == t.meet }

// Pulled counts the rows of a table that a step has requested from shard
// holders.
func (t *Tuner) Pulled(table int, rows []int64) {
	if t != nil && t.meet > 0 {
		t.statistics.counts[table].Add(rows)
		t.statistics.touched[table] += float64(len(rows))
	}
}

// Gradient measures which fraction of the rows of a dense variable's gradient
// is not zero. To save time it measures only in one early step. Several
// goroutines may call it.
func (t *Tuner) Gradient(step, variable int, gradient []byte) {
	if t != nil && step == t.config.Steps+filledAt {
		t.statistics.fills(variable, t.config.Declaration.Variables[variable], gradient)
	}
}

// After must be called by every worker after every step. At certain steps the
// workers then sum their statistics and carry out the chief's plan. took is
// the duration of the step. After returns the new pieces if rows have moved,
// and otherwise nil.
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

// Close logs the result of the search so far, if training was too short for
// the search.
func (t *Tuner) Close() {
	if t != nil && t.planner != nil {
		t.planner.unfinished()
	}
}

// confer sums the statistics (counts of used rows) of all workers, lets the
// chief (worker 0) decide, and returns the chief's plan on every worker.
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
	var encoded []byte
	if t.planner != nil {
		if p, err = t.planner.decide(ctx, steps, sum); err != nil {
			return p, err
		}
		if encoded, err = json.Marshal(p); err != nil {
			return p, err
		}
	}
	all, err := t.config.Workers.AllGatherBytes(ctx, encoded, maxPlan)
	if err != nil {
		return p, err
	}
	if err = json.Unmarshal(all[0], &p); err != nil {
		return p, fmt.Errorf("the chief's plan: %w", err)
	}
	return p, nil
}

// report collects from all workers the bytes that they exchanged in the last
// window steps. The chief logs them.
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

// move carries out a plan: it moves rows until each shard holder has its share
// of pieces.
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
