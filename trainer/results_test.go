package trainer

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// fetchedValue is a value that a step has fetched, with the value that the
// reference loop expects. Tests compare the two again after further steps.
type fetchedValue struct {
	value gorgonia.Value
	want  []float64
}

// checkResult compares the result of a step with that of the reference loop
// twin, and returns the fetched values.
func checkResult(r *Session, result Result, twin *regression, step, batch int) ([]fetchedValue, error) {
	x, y := twin.rows(step, 0, batch)
	done := twin.look(x, y)
	err := errors.Join(
		allNear("loss, norm, metric", []float64{result.Loss, result.Norm, result.Metrics["mean guess"]}, []float64{done.loss, done.norm, done.mean}))
	if len(result.Metrics) != 1 || len(result.Fetches) != 2 {
		return nil, fmt.Errorf("%d metrics and %d fetches", len(result.Metrics), len(result.Fetches))
	}
	var all []fetchedValue
	each := batch / r.job.NumShards()
	for name, values := range result.Fetches {
		if len(values) != r.job.NumReplicasPerWorker() {
			return nil, fmt.Errorf("%d values of %q, want one for each of %d virtual workers", len(values), name, r.job.NumReplicasPerWorker())
		}
		for i, v := range values {
			first := (r.job.ShardID() + i) * each
			want := slices.Clone(done.guesses[first : first+each])
			if name == "squares" {
				for k := range want {
					want[k] = (want[k] - y[first+k]) * (want[k] - y[first+k])
				}
			}
			all = append(all, fetchedValue{v, want})
			err = errors.Join(err, allNear(name, v.Data().([]float64), want))
		}
	}
	twin.apply(done, result.Rate, r.training.config.ClipNorm)
	return all, err
}

// Loss, metrics and norm of a step must be those of the whole batch in a plain
// loop, and fetches those of every virtual worker. The program owns fetched
// values, so further steps must not change them.
func TestResultsEqualReferenceLoop(t *testing.T) {
	const steps, batch = 6, 24
	for _, at := range layouts {
		for _, workers := range []int{1, 2, 5} {
			for _, sum := range []bool{false, true} {
				tj := newTestJob(t, workers, at.servers, Arch(at.arch), VirtualWorkers(6))
				errs := tj.all(func(j *Job) error {
					twin := regression{sum: sum}
					rate := func(step int) float64 { return 0.01 / float64(1+step) }
					r, err := j.Parallelize(t.Context(), twin.build, SGD(9).WithSchedule(rate), GlobalBatch(batch), MeasureNorm(), ClipNorm(2))
					if err != nil {
						return err
					}
					var all []fetchedValue
					from, to := r.Rows()
					for step := range steps {
						result, err := r.Step(t.Context(), twin.feed(step, from, to))
						if err != nil {
							return err
						}
						if result.Rate != rate(step) || result.Late {
							err = fmt.Errorf("rate %v, late %t", result.Rate, result.Late)
						}
						fetched, wrong := checkResult(r, result, &twin, step, batch)
						if err := errors.Join(err, wrong); err != nil {
							return fmt.Errorf("step %d: %w", step, err)
						}
						all = append(all, fetched...)
					}
					for _, v := range all {
						err = errors.Join(err, allNear("kept", v.value.Data().([]float64), v.want))
					}
					values, wrong := r.Values(t.Context())
					return errors.Join(err, wrong, twin.has(values))
				})
				if err := errors.Join(errs...); err != nil {
					t.Errorf("%v, %d workers, sum %t: %v", at, workers, sum, err)
				}
			}
		}
	}
}

// Without MeasureNorm or ClipNorm, Result.Norm must be NaN, because no task
// computes a norm.
func TestNormIsNaNUnlessRequested(t *testing.T) {
	for measured, option := range map[bool]Option{false: ClipNorm(0), true: MeasureNorm()} {
		r, err := soloJob(io.Discard).Parallelize(t.Context(), regression{}.build, SGD(0.1), GlobalBatch(4), option)
		if err != nil {
			t.Fatal(err)
		}
		result, err := r.Step(t.Context(), regression{}.feed(0, 0, 4))
		if err != nil || math.IsNaN(result.Norm) == measured || measured && result.Norm <= 0 {
			t.Errorf("norm %v, %v", result.Norm, err)
		}
	}
}

// If a value in the feed has exactly the shape of the input, every virtual
// worker gets it. All other values are divided among the virtual workers.
func TestFeedsAreDividedAmongVirtualWorkers(t *testing.T) {
	build := func(g *gorgonia.ExprGraph, batch int) (Model, error) {
		x := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(batch, 3))
		scale := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("scale"), gorgonia.WithShape(3, 1))
		w := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("w"), gorgonia.WithShape(3, 1), gorgonia.WithInit(gorgonia.Ones()))
		out := gorgonia.Must(gorgonia.Mul(x, gorgonia.Must(gorgonia.HadamardProd(w, scale))))
		return Model{Inputs: gorgonia.Nodes{x, scale}, Variables: gorgonia.Nodes{w}, Loss: gorgonia.Must(gorgonia.Mean(out)),
			Fetches: map[string]*gorgonia.Node{"out": out}}, nil
	}
	j := soloJob(io.Discard, Replicas(3))
	r, err := j.Parallelize(t.Context(), build, SGD(0.1), GlobalBatch(6))
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float64, 18)
	for i := range x {
		x[i] = float64(i)
	}
	result, err := r.Step(t.Context(), Feed{"x": dense(tensor.Float64, x, 6, 3), "scale": dense(tensor.Float64, []float64{1, 10, 100}, 3, 1)})
	if err != nil {
		t.Fatal(err)
	}
	for shard, v := range result.Fetches["out"] {
		for i, got := range v.Data().([]float64) {
			row := float64(3 * (2*shard + i))
			if want := row + 10*(row+1) + 100*(row+2); math.Abs(got-want) > 1e-9 {
				t.Errorf("virtual worker %d, row %d: %v, want %v", shard, i, got, want)
			}
		}
	}
}
