package trainer

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/cost"
	"github.com/plx-run/plx/trainer/owner"
	"github.com/plx-run/plx/trainer/partition"
)

// How long a number of partitions is tried: after some steps that do not
// count, for as many as take about sampleTime.
const (
	settling   = 2
	leastSteps = 10
	mostSteps  = 40
	sampleTime = 500 * time.Millisecond
)

// director is the chief's part of the tuner: it decides.
type director struct {
	r         *Replica
	allotment allotment
	counts    [][]float64                                // by table, of all meetings
	first     int                                        // steps that were made before this run
	steps     int                                        // at the last meeting
	search    *partition.Search                          // nil: the numbers of partitions are given
	trial     int                                        // the number that is being tried
	times     []time.Duration                            // of steps since the last meeting
	typical   time.Duration                              // of a step
	settled   bool                                       // rows have found their places
	room      func(context.Context, []owner.Piece) error // asks whether pieces fit
}

func newDirector(r *Replica) *director {
	d := &director{r: r, first: r.step, steps: r.step, settled: !r.declared.Movable, room: r.client.Room}
	if d.settled {
		return d
	}
	c := &r.job.config
	d.allotment = r.newAllotment()
	if start, least, most := d.allotment.bounds(r); c.search && c.partitions == 0 && most > least && start > 1 {
		d.search = partition.NewSearch(start, least, most)
	} else if c.balance == "bytes" && c.arch != "auto" {
		d.settled = true
	}
	return d
}

func (d *director) took(t time.Duration) {
	if !d.settled {
		d.times = append(d.times, t)
	}
}

// decide says what is to be done after so many steps.
func (d *director) decide(ctx context.Context, steps int, sum numbers) (p plan, err error) {
	before := d.steps
	d.learn(steps, sum)
	if d.r.job.config.arch == "auto" && !d.settled {
		d.route(sum, steps-before)
	}
	switch {
	case d.settled:
	case d.search == nil:
		d.settled = true
		p.Pieces, err = d.place(ctx, d.allotment)
	default:
		d.sample()
		p.Pieces, err = d.try(ctx)
	}
	full := (*owner.RoomError)(nil)
	if errors.As(err, &full) {
		d.r.job.Logf(slog.LevelWarn, "rows stay where they are: %v", err)
		err = nil
	}
	if full != nil || slices.Equal(p.Pieces, d.r.declared.Pieces) {
		p.Pieces = nil
	}
	d.times = d.times[:0]
	p.Meet = d.next(steps)
	return p, err
}

// learn adds up what was measured.
func (d *director) learn(steps int, sum numbers) {
	if d.counts == nil {
		for _, counts := range sum.counts {
			d.counts = append(d.counts, make([]float64, len(counts)))
		}
	}
	for i, counts := range sum.counts {
		for k, n := range counts {
			d.counts[i][k] += n
		}
	}
	d.steps = steps
}

// next is when the workers meet again.
func (d *director) next(steps int) int {
	switch {
	case !d.settled:
		return steps + settling + min(max(int(sampleTime/max(d.typical, 1)), leastSteps), mostSteps)
	case steps < d.first+d.r.job.config.tell:
		return d.first + d.r.job.config.tell
	}
	return 0
}

// place cuts and assigns all tables. A [owner.RoomError] says that it does not
// fit.
func (d *director) place(ctx context.Context, l allotment) ([]owner.Piece, error) {
	counts := d.counts
	if d.r.job.config.balance == "bytes" {
		counts = nil
	}
	pieces := d.r.pieces(l, counts, max(d.steps-d.first, 1))
	return pieces, d.room(ctx, pieces)
}

// sample gives the search the times of the steps since the last meeting.
func (d *director) sample() {
	if len(d.times) <= settling {
		return
	}
	times := slices.Clone(d.times[settling:])
	slices.Sort(times)
	d.typical = times[len(times)/2]
	if d.trial > 0 {
		d.search.Add(d.trial, times)
	}
}

// try goes on to the next number of partitions that fits, or ends the search
// with the best one.
func (d *director) try(ctx context.Context) ([]owner.Piece, error) {
	for {
		p, more := d.search.Next()
		if !more {
			return d.choose(ctx)
		}
		pieces, err := d.place(ctx, d.allotment.cut(d.r, p))
		if full := (*owner.RoomError)(nil); errors.As(err, &full) {
			d.search.Skip(p, err.Error())
			continue
		}
		d.trial = p
		return pieces, err
	}
}

// choose ends the search.
func (d *director) choose(ctx context.Context) ([]owner.Piece, error) {
	d.settled = true
	result := d.search.Result()
	for _, line := range result.Lines() {
		d.r.job.Logf(slog.LevelInfo, "%s", line)
	}
	if err := d.plot(result); err != nil {
		d.r.job.Logf(slog.LevelWarn, "the plot of the partition search: %v", err)
	}
	if result.P == 0 {
		return nil, nil
	}
	d.allotment = d.allotment.cut(d.r, result.P)
	return d.place(ctx, d.allotment)
}

// unfinished says that training has ended before the search did.
func (d *director) unfinished() {
	if d.search == nil || d.settled {
		return
	}
	d.r.job.Logf(slog.LevelInfo, "training ended before the search for partitions did:")
	d.r.log(d.search.Result().Lines())
}

// plot draws the search where timelines go.
func (d *director) plot(result partition.Result) error {
	path := filepath.Join(d.r.job.config.profileDir, "partitions.svg")
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(result.Plot(file), file.Close()); err != nil {
		return err
	}
	d.r.hooks.tell("the plot of the partition search is in", path)
	return nil
}

// moved notes that rows have moved.
func (d *director) moved(steps int, took time.Duration) {
	level := slog.LevelDebug
	if d.settled {
		level = slog.LevelInfo
	}
	d.r.job.Logf(level, "rows moved between step %d and %d, in %v", steps-1, steps, took.Round(time.Millisecond))
}

// route decides by the rows that were touched where tables travel. Where
// workers of a host add their gradients before they send them, they stay with
// the servers: it was agreed at the start who adds what.
func (d *director) route(sum numbers, window int) {
	r := d.r
	if len(r.declared.Hosts) > 0 && len(r.declared.Hosts) < r.job.NumWorkers() {
		r.job.Logf(slog.LevelInfo, "--arch auto: tables stay on servers, to which the workers of a host send as one")
		return
	}
	touched := make([]float64, len(sum.touched))
	for i, n := range sum.touched {
		touched[i] = n / float64(window*r.job.NumWorkers())
	}
	report, _ := r.costs(touched)
	first := len(r.declared.Variables) - len(r.tables)
	for i, v := range r.declared.Variables[first:] {
		way, why := cost.Choose(r.cost(first+i, touched), report.Cluster)
		role := cluster.PS
		if way == cost.AllReduce {
			role = cluster.Worker
		}
		if role != d.allotment.routes[i] && r.owners(role) > 0 {
			r.job.Logf(slog.LevelInfo, "--arch auto: variable %q goes by %s from now on: %s", v.Name, way, why)
			d.allotment.routes[i] = role
		}
	}
}
