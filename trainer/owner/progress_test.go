package owner

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// progressOf is what one asks how far a server is.
func (j *testJob) progressOf(i int) *Progress {
	p := &Progress{}
	p.server.Store(j.served[i])
	return p
}

// startOrGoOn is a job on servers that goes on behind a step, if that is any.
func startOrGoOn(t *testing.T, d Declaration, first uint64, servers int) *testJob {
	if first == 0 {
		return newJob(t, d, Servers, servers)
	}
	return restored(t, d, first, Servers, servers)
}

// A server knows of every group how many of its steps it has applied, as the
// groups' workers do, whatever the others' are.
func TestProgressCountsEveryGroup(t *testing.T) {
	for _, c := range []struct {
		mode            string
		leaves, workers int
		first           uint64
	}{
		{"async", 6, 3, 0}, {"async", 6, 3, 28}, {"ssp:100", 5, 2, 0}, {"group:2", 8, 5, 7}, {"group:3", 7, 3, 0}, {"backup:0", 6, 3, 4},
	} {
		for _, clip := range []float64{0, 50} {
			if c.mode == "backup:0" && clip > 0 {
				continue // it knows no norm
			}
			t.Run(fmt.Sprint(c.mode, "/", c.first, "/", clip), func(t *testing.T) {
				d := in(c.mode, mixed(c.leaves, c.workers))
				d.Clip = clip
				j := startOrGoOn(t, d, c.first, 2)
				if got := j.progressOf(0).Steps(); got != nil {
					t.Errorf("before training has begun: %v", got)
				}
				members := j.connect(t)
				groups := j.d.Groups()
				want := slices.Repeat([]uint64{c.first}, len(groups))
				random := rand.New(rand.NewPCG(1, 2))
				for range 12 {
					for i := range j.served {
						if got := j.progressOf(i).Steps(); !slices.Equal(got, want) {
							t.Fatalf("ps:%d has %v, want %v", i, got, want)
						}
					}
					g := random.IntN(len(groups))
					_, errs := step(members[groups[g].Lo:groups[g].Hi], want[g], 0.05)
					must(t, errs)
					want[g]++
				}
				leave(t, j, members)
				if got := j.progressOf(0).Steps(); !slices.Equal(got, want) {
					t.Errorf("after the end: %v, want %v", got, want)
				}
			})
		}
	}
}

// Where all take every step together, and where nothing is owned, there is
// nothing to tell.
func TestProgressOfNothing(t *testing.T) {
	if got := new(Progress).Steps(); got != nil {
		t.Errorf("of no server: %v", got)
	}
	j := newJob(t, example(2, 2), Servers, 1)
	members := j.connect(t)
	_, errs := step(members, 0, 0.05)
	must(t, errs)
	if got := j.progressOf(0).Steps(); got != nil {
		t.Errorf("in sync: %v", got)
	}
	if got := j.d.Groups(); !slices.Equal(got, []Range{{0, 2}}) {
		t.Errorf("in sync: groups %v", got)
	}
	leave(t, j, members)
	idle := &server{opened: true, engine: &engine{d: &Declaration{Sync: Sync{Mode: Asynchronous}}}}
	p := &Progress{}
	p.server.Store(idle)
	if got := p.Steps(); got != nil {
		t.Errorf("without a piece: %v", got)
	}
}

// The step with which a group finds out that nobody has data counts as little
// here as with its workers.
func TestNobodysStepIsNoProgress(t *testing.T) {
	for _, first := range []uint64{0, 5} {
		j := startOrGoOn(t, in("async", example(2, 2)), first, 1)
		members := j.connect(t)
		_, errs := step(members[1:], first, 0.05)
		must(t, errs)
		for _, m := range members { // the chief has none at all
			if err := m.Join(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		if got := j.progressOf(0).Steps(); !slices.Equal(got, []uint64{first, first + 1}) {
			t.Errorf("%v, behind %d", got, first)
		}
		leave(t, j, members)
	}
}

// Whoever asks while steps are made hears of no fewer than were made by then,
// and of no more than were begun.
func TestProgressWhileStepsAreMade(t *testing.T) {
	const steps = 200
	d := in("async", example(3, 3))
	j := newJob(t, d, Servers, 2)
	members := j.connect(t)
	var training sync.WaitGroup
	for _, m := range members {
		training.Go(func() {
			for s := range uint64(steps) {
				if _, err := m.take(context.Background(), s, 0.05, everyLeaf); err != nil {
					t.Error(err)
					return
				}
				for i := range j.served {
					if got := j.progressOf(i).Steps(); got[m.rank] != s+1 || slices.Max(got) > steps {
						t.Errorf("ps:%d has %v after step %d of worker:%d", i, got, s, m.rank)
						return
					}
				}
			}
		})
	}
	training.Wait()
	leave(t, j, members)
}
