package autotune

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/collective"
	"github.com/plx-run/plx/trainer/exchange/client"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
)

// table is an embedding table.
func table(name string, rows, width int) layout.Variable {
	return layout.Variable{Name: name, Dtype: layout.Float32, Shape: []int{rows, width}, Sparse: &layout.Sparse{}}
}

// dense returns a float32 variable, which has 4 bytes per element.
func dense(name string, shape ...int) layout.Variable {
	return layout.Variable{Name: name, Dtype: layout.Float32, Shape: shape}
}

// declare returns a declaration that places the variables on n servers.
func declare(t *testing.T, n int, variables ...layout.Variable) layout.Declaration {
	t.Helper()
	d := layout.Declaration{VirtualWorkers: 1, Workers: []layout.Range{{Lo: 0, Hi: 1}}, Variables: variables, Movable: true}
	if err := d.AssignPieces(policy.Servers, n, 0); err != nil {
		t.Fatal(err)
	}
	return d
}

// job simulates a training with one worker, the chief, and several servers,
// without a network. It implements Holders for the tuner.
type job struct {
	t       *testing.T
	now     *layout.Declaration // the declaration with the current placement of rows
	room    func(pieces []layout.Piece) error
	moves   [][]layout.Piece
	volumes []client.Volume
	logged  []string // log lines of the tuner, without those of debug level
	debug   []string
	lost    error // error that Repartition returns; nil means success
	tuner   *Tuner
}

func (j *job) Room(_ context.Context, pieces []layout.Piece) error {
	if j.room == nil {
		return nil
	}
	return j.room(pieces)
}

func (j *job) Repartition(_ context.Context, pieces []layout.Piece) error {
	if j.lost != nil {
		return j.lost
	}
	next, err := j.now.Placed(pieces) // every row once
	if err != nil {
		return err
	}
	j.now, j.moves = next, append(j.moves, slices.Clone(pieces))
	return nil
}

func (j *job) Volumes() []client.Volume { return j.volumes }

// start starts a job with each server on a host of its own, and the worker on
// another.
func start(t *testing.T, c Config) *job {
	j := &job{t: t, now: &c.Declaration}
	c.Chief, c.Holders, c.Workers = true, j, collective.New(collective.Config{Addrs: []string{"here"}})
	c.Cluster.Workers = []string{"gpu01"}
	for i := range c.Declaration.Holders {
		c.Cluster.Servers = append(c.Cluster.Servers, fmt.Sprintf("cpu%02d", i+1))
	}
	c.Logf = func(level slog.Level, format string, args ...any) {
		to := &j.logged
		if level == slog.LevelDebug {
			to = &j.debug
		}
		*to = append(*to, fmt.Sprintf(format, args...))
	}
	if c.Report == 0 {
		c.Report = 1 << 20 // not in this test
	}
	j.tuner = New(c)
	return j
}

// parts returns the current number of partitions of a table.
func (j *job) parts(name string) (n int) {
	for _, p := range j.now.Pieces {
		if j.now.Variables[p.Variable].Name == name {
			n++
		}
	}
	return n
}

// says reports whether the log has a line that contains text.
func (j *job) says(text string) bool {
	return slices.ContainsFunc(j.logged, func(line string) bool { return strings.Contains(line, text) })
}

// train simulates the steps after from up to to, and returns the first error.
// took returns the duration of a step, by the number of steps since rows last
// moved.
func (j *job) train(from, to int, took func(since int) time.Duration, pull func(step int) []int64) error {
	last := from
	for step := from + 1; step <= to; step++ {
		if pull != nil {
			j.tuner.Pulled(0, pull(step))
		}
		moved, err := j.tuner.After(j.t.Context(), step, took(step-last))
		if err != nil {
			return err
		}
		if len(moved) > 0 {
			last = step
			if !slices.Equal(moved, j.now.Pieces) {
				j.t.Errorf("step %d: rows are at %v, and After returns %v", step, j.now.Pieces, moved)
			}
		}
	}
	return nil
}

func steady(int) time.Duration { return 10 * time.Millisecond }
