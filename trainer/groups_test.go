package trainer

import (
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/cudatest"
)

// With WithGroups, each variable must get the same bits as in a step of a
// training with its learning rate and decay for all variables. The test covers
// a single worker, servers, tables and GPU updates.
func TestGroupsChangeRateAndDecay(t *testing.T) {
	grouped := func(name string) Group {
		return map[string]Group{"first.w": {RateFactor: 0.25}, "last.b": {NoDecay: true}, "table": {RateFactor: 0.25, NoDecay: true}}[name]
	}
	for name, opt := range map[string]Optimizer{
		"sgd": SGD(0.1).WithDecay(0.5), "momentum": Momentum(0.1, 0.9).WithDecay(0.5), "adagrad": Adagrad(0.1).WithDecay(0.5),
		"adam": Adam(0.01).WithDecay(0.5), "adamw": Adam(0.01).WithDecoupledDecay(0.5),
	} {
		t.Run(name, func(t *testing.T) {
			slow, still := opt, opt
			slow.Rate /= 4
			still.Settings.Decay = 0
			both := slow
			both.Settings.Decay = 0
			mlp := trial{build: dropoutMLP, feed: classified(60), options: []Option{GlobalBatch(12)}, steps: 3}
			lookups := trial{build: words, feed: sentences, options: []Option{GlobalBatch(12)}, steps: 3}
			for what, values := range map[string]func(Optimizer) map[string][]float32{
				"alone":   func(o Optimizer) map[string][]float32 { return mlp.one(t, o, soloJob(io.Discard)) },
				"a table": func(o Optimizer) map[string][]float32 { return lookups.one(t, o, soloJob(io.Discard)) },
				"gpu": func(o Optimizer) map[string][]float32 {
					j := soloJob(io.Discard)
					openGPU(t, j, cudatest.Options{})
					return mlp.one(t, o, j)
				},
			} {
				got, plain := values(opt.WithGroups(grouped)), values(opt)
				for v, want := range plain {
					switch v {
					case "first.w":
						want = values(slow)[v]
					case "last.b":
						want = values(still)[v]
					case "table":
						want = values(both)[v]
					}
					if !slices.Equal(got[v], want) {
						t.Errorf("%s: %s is %v, want %v", what, v, got[v][:2], want[:2])
					}
					if changed := v == "first.w" || v == "table"; changed && slices.Equal(got[v], plain[v]) {
						t.Errorf("%s: %s is as without groups", what, v)
					}
				}
			}
		})
	}
	t.Run("together", func(t *testing.T) {
		x := trial{build: divided, feed: sentences, opt: Adam(0.01).WithDecay(0.5).WithGroups(grouped), options: []Option{GlobalBatch(12)}, steps: 5}
		want := x.alone(t, VirtualWorkers(6))
		for _, s := range []shape{{3, 2, []Setting{Arch("ps")}}, {2, 0, []Setting{Arch("allreduce")}}} {
			got, err := x.together(newTestJob(t, s.workers, s.servers, append(s.settings, VirtualWorkers(6))...))
			if err != nil || got.same(want) != nil {
				t.Errorf("%v, %v", err, got.same(want))
			}
		}
		x.opt = Adam(0.01).WithDecay(0.5)
		if got := x.alone(t, VirtualWorkers(6)); got.digest == want.digest {
			t.Error("the groups change nothing")
		}
	})
}

// one takes one step of the training and returns the values of all variables.
func (x trial) one(t *testing.T, opt Optimizer, j *Job) map[string][]float32 {
	t.Helper()
	s, err := j.Parallelize(t.Context(), x.build(1), opt, x.options...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Step(t.Context(), x.feed(0, 0, 12)); err != nil {
		t.Fatal(err)
	}
	tensors, err := s.Values(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	values := map[string][]float32{}
	for name, v := range tensors {
		values[name] = v.Data().([]float32)
	}
	return values
}

func TestInvalidGroupsAreRefused(t *testing.T) {
	for _, factor := range []float64{-1, math.NaN(), math.Inf(1)} {
		_, err := soloJob(io.Discard).Parallelize(t.Context(), dropoutMLP(1), SGD(0.1).WithGroups(func(string) Group { return Group{RateFactor: factor} }), GlobalBatch(12))
		if err == nil || !strings.Contains(err.Error(), `variable "first.w": `) {
			t.Errorf("%v: %v", factor, err)
		}
	}
}
