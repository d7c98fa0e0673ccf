package trainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// numbers is a dataset in which sample i is the number i. Its description
// contains a name.
type numbers struct {
	n    int
	name string
}

func (d numbers) Len() int              { return d.n }
func (d numbers) At(i int) (int, error) { return i, nil }
func (d numbers) Describe() string      { return fmt.Sprintf("%d %s", d.n, d.name) }

// Together, the workers must read the samples of each batch in order, whatever
// their number. Each worker must get the samples of its virtual workers. A
// program may ask for steps in any order.
func TestShardsMakeTheSameBatches(t *testing.T) {
	for _, c := range []struct{ samples, batch, virtual, workers int }{
		{50, 16, 4, 1}, {50, 16, 4, 2}, {50, 16, 4, 4}, {100, 12, 6, 4}, {24, 6, 6, 5}, {7, 8, 8, 3}, {0, 4, 4, 2},
	} {
		tj := newTestJob(t, c.workers, 0, VirtualWorkers(c.virtual))
		steps := c.samples / c.batch
		got := make([][][]int, c.workers) // by worker and step
		errs := tj.all(func(j *Job) error {
			shard, err := Shard(t.Context(), j, numbers{c.samples, "numbers"}, c.batch)
			if err != nil {
				return err
			}
			mine := make([][]int, steps)
			for i := range steps {
				step := (i*5 + 2) % steps // jumps about
				batch, err := shard.Batch(step)
				if err != nil || len(batch) != c.batch/c.virtual*j.NumReplicasPerWorker() {
					return fmt.Errorf("step %d: %v, %w", step, batch, err)
				}
				mine[step] = batch
			}
			for i := range mine {
				if mine[i] == nil {
					mine[i], err = shard.Batch(i)
				}
			}
			got[j.WorkerID()] = mine
			if _, end := shard.Batch(steps); end != io.EOF {
				t.Errorf("%+v: after the last batch: %v", c, end)
			}
			if _, bad := shard.Batch(-1); bad == nil || bad == io.EOF {
				t.Errorf("%+v: step -1: %v", c, bad)
			}
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		for step := range steps {
			next := step * c.batch
			for _, mine := range got {
				for _, x := range mine[step] {
					if x != next {
						t.Fatalf("%+v: step %d: sample %d, want %d", c, step, x, next)
					}
					next++
				}
			}
			if next != (step+1)*c.batch {
				t.Errorf("%+v: step %d ends before sample %d", c, step, next)
			}
		}
	}
}

// Epochs must read the same samples as data.Epochs with the job's seed, and
// Feed must return the feed that the given function makes of them.
func TestEpochsFollowTheSeed(t *testing.T) {
	tj := newTestJob(t, 2, 0, Seed(7))
	whole, err := data.Epochs(numbers{30, "numbers"}, 8, 7)
	if err != nil {
		t.Fatal(err)
	}
	errs := tj.all(func(j *Job) error {
		shard, err := Epochs(t.Context(), j, numbers{30, "numbers"}, 8)
		if err != nil {
			return err
		}
		broken := errors.New("broken")
		feed := shard.Feed(func(samples []int) (Feed, error) {
			for i, x := range samples {
				if want, _ := whole.At(8*5 + 4*j.WorkerID() + i); x != want || len(samples) != 4 {
					t.Errorf("sample %d of step 5 is %d, want %d", i, x, want)
				}
			}
			return nil, broken
		})
		if _, err := feed(5); err != broken {
			t.Errorf("got %v", err)
		}
		if _, err := feed(-1); err == nil || err == broken {
			t.Errorf("step -1: %v", err)
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if _, err := Epochs(t.Context(), tj.jobs[0], numbers{7, "numbers"}, 8); err == nil || !strings.Contains(err.Error(), "7 samples fill no batch of 8") {
		t.Errorf("a batch too large: %v", err)
	}
}

// If a worker's dataset differs, Shard must fail with an error that names the
// worker, even if the difference is far inside a long description.
func TestWorkersWithOtherDataAreRefused(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, c := range []struct{ chief, other, want string }{
		{"rows of cats and dogs", "rows of cats", "worker:1 reads other data than the chief: 12 rows of cats; the chief reads: 12 rows of cats and dogs"},
		{long + "a", long + "b", "worker:1 reads other data than the chief"},
	} {
		tj := newTestJob(t, 2, 0)
		errs := tj.all(func(j *Job) error {
			d := numbers{12, c.chief}
			if !j.IsChief() {
				d.name = c.other
			}
			_, err := Shard(t.Context(), j, d, 4)
			return err
		})
		var hinted interface{ Hint() string }
		if errs[0] == nil || !strings.HasSuffix(errs[0].Error(), ": worker:1 reads other data than the chief") || errs[1] == nil || !strings.Contains(errs[1].Error(), c.want) || !errors.As(errs[1], &hinted) {
			t.Errorf("got %v", errs)
		}
	}
}

func TestShardRefusesInvalidBatch(t *testing.T) {
	j := newTestJob(t, 1, 0, VirtualWorkers(3)).jobs[0]
	for batch, want := range map[int]string{4: "4 rows cannot be divided over 3 virtual workers", 0: "global batch of 0 rows"} {
		if _, err := Shard(t.Context(), j, numbers{12, "numbers"}, batch); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("batch %d: %v", batch, err)
		}
	}
}

// stuck is a dataset whose reads block until the test releases them.
type stuck struct {
	numbers
	asked *atomic.Int64
	let   chan struct{}
}

func (d stuck) At(i int) (int, error) {
	d.asked.Add(1)
	<-d.let
	return i, nil
}

// If the context ends, Batch must return even though a sample is still being
// read.
func TestShardEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	d := stuck{numbers{100, "numbers"}, new(atomic.Int64), make(chan struct{})}
	defer close(d.let)
	shard, err := Shard(ctx, newTestJob(t, 1, 0).jobs[0], d, 4)
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("enough")
	done := make(chan error)
	go func() {
		_, err := shard.Batch(0)
		done <- err
	}()
	cancel(why)
	if err := <-done; err != why {
		t.Errorf("got %v", err)
	}
}

// The workers of a host share its cores, so each must read at most its part of
// the cores in samples at the same time.
func TestShardReadsWithinTheWorkersCores(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, c := range []struct {
		cores int
		each  int64
	}{{7, 3}, {1, 1}} {
		runtime.GOMAXPROCS(c.cores)
		tj := newTestJob(t, 2, 0) // both on one host
		var data [2]*stuck
		var shards [2]*DataShard[int]
		errs := tj.all(func(j *Job) (err error) {
			d := &stuck{numbers{100, "numbers"}, new(atomic.Int64), nil}
			data[j.WorkerID()] = d
			shards[j.WorkerID()], err = Shard(context.Background(), j, d, 40)
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			let := make(chan struct{})
			var running sync.WaitGroup
			for i, shard := range shards {
				data[i].let = let
				running.Go(func() {
					if batch, err := shard.Batch(0); len(batch) != 20 || err != nil {
						t.Errorf("worker:%d: %v, %v", i, batch, err)
					}
				})
			}
			synctest.Wait() // wait until every reading goroutine is blocked in At
			for i, d := range data {
				if n := d.asked.Load(); n != c.each {
					t.Errorf("%d cores, 2 workers: worker:%d reads %d samples at once, want %d", c.cores, i, n, c.each)
				}
			}
			close(let)
			running.Wait()
		})
	}
}

// numbered builds a model whose loss is its only weight times ShardID.
func numbered(dtype tensor.Dtype, spoil func(m *Model)) Build {
	return func(g *gorgonia.ExprGraph, batch int) (Model, error) {
		one := func(name string, options ...gorgonia.NodeConsOpt) *gorgonia.Node {
			return gorgonia.NewVector(g, dtype, append([]gorgonia.NodeConsOpt{gorgonia.WithName(name), gorgonia.WithShape(1)}, options...)...)
		}
		x := gorgonia.NewVector(g, dtype, gorgonia.WithName("x"), gorgonia.WithShape(batch))
		m := Model{ShardID: one("shard"), NumShards: one("shards"), Inputs: gorgonia.Nodes{x}}
		w := one("w", gorgonia.WithInit(Zeros()))
		product, err := gorgonia.HadamardProd(w, m.ShardID)
		if err != nil {
			return m, err
		}
		m.Variables, m.Fetches = gorgonia.Nodes{w}, map[string]*gorgonia.Node{"shard": m.ShardID, "shards": m.NumShards}
		m.Loss, err = gorgonia.Mean(product)
		if spoil != nil {
			spoil(&m)
		}
		return m, err
	}
}

// ShardID must be the number of each virtual worker, for any number of
// workers. In an evaluation, ShardID must be 0 and NumShards 1.
func TestShardInputsHoldVirtualWorkerNumbers(t *testing.T) {
	const virtual = 6
	for _, c := range []struct{ workers, servers int }{{1, 0}, {2, 0}, {4, 1}} {
		for _, dtype := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			tj := newTestJob(t, c.workers, c.servers, VirtualWorkers(virtual))
			errs := tj.all(func(j *Job) error {
				r, err := j.Parallelize(t.Context(), numbered(dtype, nil), SGD(1), GlobalBatch(virtual))
				if err != nil {
					return err
				}
				feed := func(rows int) Feed {
					return Feed{"x": tensor.New(tensor.Of(dtype), tensor.WithShape(rows))}
				}
				for range 2 {
					result, err := r.Step(t.Context(), feed(j.NumReplicasPerWorker()))
					if err != nil {
						return err
					}
					for vw := range j.NumReplicasPerWorker() {
						id, of := fmt.Sprint(result.Fetches["shard"][vw].Data()), fmt.Sprint(result.Fetches["shards"][vw].Data())
						if want := fmt.Sprintf("[%d]", j.ShardID()+vw); id != want || of != "[6]" {
							t.Errorf("%+v: virtual worker %s of %s, want %s of [6]", c, id, of, want)
						}
					}
				}
				whole, err := r.Evaluate(t.Context(), feed(5))
				if err != nil {
					return err
				}
				if id, of := fmt.Sprint(whole.Fetches["shard"][0].Data()), fmt.Sprint(whole.Fetches["shards"][0].Data()); id != "[0]" || of != "[1]" {
					t.Errorf("an evaluation is shard %s of %s", id, of)
				}
				values, err := r.Values(t.Context())
				if got := fmt.Sprint(values["w"].Data()); got != "[-5]" { // two steps, each of which subtracts the mean of the numbers 0 to 5
					t.Errorf("%+v: the weight is %s, want [-5]", c, got)
				}
				return err
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
		}
	}
}

func TestInvalidShardInputsAreRefused(t *testing.T) {
	for want, spoil := range map[string]func(m *Model){
		`"x" is float32 of shape (6): want ShardID and NumShards of shape (1)`: func(m *Model) { m.ShardID = m.Inputs[0] },
		`"shards": inputs and variables need distinct names`:                   func(m *Model) { m.ShardID = m.NumShards },
		`the loss needs "shard"`: func(m *Model) { m.ShardID = nil },
	} {
		j := newTestJob(t, 1, 0).jobs[0]
		if _, err := j.Parallelize(t.Context(), numbered(tensor.Float32, spoil), SGD(1), GlobalBatch(6)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	j := newTestJob(t, 1, 0).jobs[0]
	r, err := j.Parallelize(t.Context(), numbered(tensor.Float32, nil), SGD(1), GlobalBatch(1))
	if err != nil {
		t.Fatal(err)
	}
	one := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(1))
	if _, err := r.Step(t.Context(), Feed{"x": one, "shard": one}); err == nil || !strings.Contains(err.Error(), `the model has no input "shard"`) {
		t.Errorf("a program feeds it: %v", err)
	}
}

// With ShardBatch, the global batch must be that times the number of virtual
// workers. EvenBatch must round up to a multiple of that number.
func TestShardBatchSetsGlobalBatch(t *testing.T) {
	for workers, want := range map[int]int{1: 5, 3: 15} {
		tj := newTestJob(t, workers, 0)
		for _, err := range tj.all(func(j *Job) error {
			s, err := j.Parallelize(t.Context(), smallCNN(1), SGD(0.1), flags(func(c *config.Config) { c.ShardBatch = 5 }))
			if err != nil {
				return err
			}
			if from, to := s.Rows(); from != 5*j.WorkerID() || to != from+5 || s.training.config.GlobalBatch != want {
				t.Errorf("%s of %d: rows %d to %d of %d", j.contract.Task, workers, from, to, s.training.config.GlobalBatch)
			}
			return nil
		}) {
			if err != nil {
				t.Error(err)
			}
		}
	}
	j := soloJob(io.Discard, VirtualWorkers(7))
	for rows, want := range map[int]int{-1: 7, 0: 7, 1: 7, 7: 7, 8: 14, 64: 70} {
		if got := j.EvenBatch(rows); got != want {
			t.Errorf("an even batch of %d rows has %d, want %d", rows, got, want)
		}
	}
	if _, err := j.Parallelize(t.Context(), smallCNN(1), SGD(0.1), flags(func(c *config.Config) { c.ShardBatch, c.GlobalBatch = 5, 35 })); err == nil {
		t.Error("two batches are not refused")
	}
}
