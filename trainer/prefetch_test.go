package trainer

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/tensor"

	"github.com/plx-run/plx/trainer/config"
)

// prefetched trains with calls of Prefetch. said returns the number of the
// step whose feed is prefetched before the given step, or -1 for none.
func (x trial) prefetched(j *Job, said func(rank, step int) int) (done trained, err error) {
	ctx := context.Background()
	r, err := j.Parallelize(ctx, x.build(j.Seed()), x.opt, x.options...)
	if err != nil {
		return done, err
	}
	from, to := r.Rows()
	for step := range x.steps {
		if ahead := said(j.WorkerID(), step); ahead >= 0 {
			next := x.feed(ahead, from, to)
			if err := r.Prefetch(Feed{"word": next["word"]}); err != nil {
				return done, err
			}
			clear(next["word"].Data().([]int64)) // it was copied
		}
		if step%3 == 1 { // the evaluation fetches other rows between two steps
			if _, err := r.Evaluate(ctx, x.feed(50, 0, 2)); err != nil {
				return done, err
			}
		}
		result, err := r.Step(ctx, x.feed(step, from, to))
		if err != nil {
			return done, err
		}
		done.losses, done.norms = append(done.losses, result.Loss), append(done.norms, result.Norm)
	}
	done.digest, err = r.variables.digest(ctx, r.Steps())
	return done, err
}

// Prefetch must not change a bit of the results, even if the wrong feed was
// prefetched.
func TestPrefetchChangesNoBit(t *testing.T) {
	testPrefetch(t, func(said, at, hosts int) bool { // each that is said on both kinds of hosts
		return (said+3*hosts)%len(layouts) == at
	})
}

func testPrefetch(t *testing.T, chosen func(said, at, hosts int) bool) {
	x := everything()["embedding, duplicates"]
	want := x.alone(t, VirtualWorkers(6))
	saying := map[string]func(rank, step int) int{
		"next":              func(_, step int) int { return step + 1 },
		"this":              func(_, step int) int { return step },
		"wrong":             func(_, step int) int { return step + 2 },
		"now and then":      func(rank, step int) int { return []int{step + 1, -1, step + 7}[(rank+step)%3] },
		"by one alone":      func(rank, step int) int { return max(-1, step+1-1000*rank) },
		"by all but one":    func(rank, step int) int { return map[bool]int{false: step + 1, true: -1}[rank == 1] },
		"by each its own":   func(rank, step int) int { return step + rank },
		"wrong, then right": func(_, step int) int { return step + 1 + step%2 },
	}
	for k, name := range slices.Sorted(maps.Keys(saying)) {
		said := saying[name]
		t.Run(name, func(t *testing.T) {
			for i, at := range layouts {
				for h, hosts := range [][]string{{"127.0.0.2", "127.0.0.2", "127.0.0.3"}, {"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"}} {
					if !chosen(k, i, h) {
						continue
					}
					tj := newTestJobOn(t, hosts, at.servers, VirtualWorkers(6), Arch(at.arch), scattered)
					errs := append(tj.all(func(j *Job) error {
						done, err := x.prefetched(j, said)
						return errors.Join(err, done.same(want))
					}), tj.wait())
					if err := errors.Join(errs...); err != nil {
						t.Errorf("%v on %v: %v", at, hosts, err)
					}
				}
			}
		})
	}
}

// If a program prefetches the right rows, workers must fetch none between two
// steps: all rows arrive during the step before.
func TestPrefetchHitsAndMisses(t *testing.T) {
	x := everything()["embedding, duplicates"]
	for _, on := range []bool{true, false} {
		j := soloJob(io.Discard, flags(func(c *config.Config) { c.NoPrefetch = !on }))
		r, err := j.Parallelize(t.Context(), x.build(1), x.opt, x.options...)
		if err != nil {
			t.Fatal(err)
		}
		from, to := r.Rows()
		for step := range 3 {
			if err := r.Prefetch(x.feed(step+1, from, to)); err != nil {
				t.Fatal(err)
			}
			if known, _ := r.worker.tables.Ahead(); known != on {
				t.Errorf("step %d, prefetch %t: known is %t", step, on, known)
			}
			if _, err := r.Step(t.Context(), x.feed(step, from, to)); err != nil {
				t.Fatal(err)
			}
			if known, requested := r.worker.tables.Ahead(); known || requested != on {
				t.Errorf("step %d, prefetch %t: known %t, requested %t", step, on, known, requested)
			}
		}
		if err := r.close(nil); err != nil {
			t.Error(err)
		}
	}
}

// With a --sync mode other than sync, workers must not request rows in
// advance.
func TestPrefetchDoesNothingOutOfSync(t *testing.T) {
	x := everything()["embedding, duplicates"]
	for _, mode := range []string{"async", "ssp:2", "backup:1"} {
		tj := newTestJob(t, 2, 1, Sync(mode))
		x.options = []Option{GlobalBatch(24)}
		errs := append(tj.all(func(j *Job) error {
			_, err := x.prefetched(j, func(_, step int) int { return step + 1 })
			if r := j.session.Load(); r != nil {
				if known, requested := r.worker.tables.Ahead(); known || requested {
					t.Errorf("%s: known %t, requested %t", mode, known, requested)
				}
			}
			return err
		}), tj.wait())
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

// Prefetch must reject invalid indices at once, and the training must
// continue.
func TestPrefetchRefusesInvalidIndices(t *testing.T) {
	x := everything()["embedding, duplicates"]
	r, err := soloJob(io.Discard).Parallelize(t.Context(), x.build(1), x.opt, x.options...)
	if err != nil {
		t.Fatal(err)
	}
	from, to := r.Rows()
	n := (to - from) * wordLength
	for want, feed := range map[string]Feed{
		"are not fed":   {},
		"index 37":      {"word": tensor.New(tensor.WithShape(n), tensor.WithBacking(slices.Repeat([]int64{37}, n)))},
		"1 indices":     {"word": tensor.New(tensor.WithShape(1), tensor.WithBacking([]int64{3}))},
		"type float32:": {"word": dense(tensor.Float32, make([]float64, n), n)},
	} {
		if err := r.Prefetch(feed); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := r.Step(t.Context(), x.feed(0, from, to)); err != nil {
		t.Error(err)
	}
	if err := r.close(nil); err != nil {
		t.Error(err)
	}
	if err := r.Prefetch(Feed{}); err != nil {
		t.Errorf("after the end: %v", err)
	}
}
