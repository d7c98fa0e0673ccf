package client

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// final makes the final cut after the chief's last step, while other workers
// may continue. It returns the cut.
func (m *member) final(t *testing.T) <-chan []uint64 {
	made := make(chan []uint64, 1)
	go func() {
		if alone, err := m.Saves.Conclude(context.Background(), patience.Limit); !alone || err != nil {
			t.Errorf("not alone: %v", err)
		}
		made <- m.saveCut(t, Passing)
	}()
	return made
}

// A chief that has taken its last step does not delay the other workers,
// however many steps they still take.
func TestFinalCutOfChiefThatFinishesFirst(t *testing.T) {
	const steps = 20
	for _, mode := range []string{"async", "ssp:0", "ssp:1", "group:3"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			j, members := fromZeros(t, counting(mode, 3), 2)
			var running sync.WaitGroup
			for _, m := range members[1:] {
				running.Go(func() { m.works(t, steps) })
			}
			members[0].adds(t, 2, nil)
			cut := within(t, members[0].final(t))
			if !slices.Equal(cut, []uint64{2, steps, steps}) {
				t.Errorf("cut %v", cut)
			}
			running.Wait()
			j.savedTimes(t, 1)
			holdsCut(t, &j.d, j.store.saves()[0], cut)
			leave(t, j, members[:1])
		})
	}
}

// While Conclude waits for other workers, the chief can save with either kind
// of cut.
func TestConcludedChiefCanSave(t *testing.T) {
	j, members := fromZeros(t, counting("ssp:0", 3), 2)
	members[0].adds(t, 0, nil)
	alone := func(most time.Duration) bool {
		alone, err := members[0].Saves.Conclude(context.Background(), most)
		if err != nil {
			t.Fatal(err)
		}
		return alone
	}
	if alone(time.Millisecond) {
		t.Fatal("two others are there")
	}
	before := members[0].saveCut(t, Holding)
	var running sync.WaitGroup
	for _, m := range members[1:] {
		running.Go(func() { m.works(t, 9) })
	}
	eventually(t, "both wait", func() bool { return heldBack(t, j, 2) })
	if !alone(patience.Limit) {
		t.Fatal("they were held for ever")
	}
	after := members[0].saveCut(t, Passing)
	running.Wait()
	j.savedTimes(t, 2)
	for i, cut := range [][]uint64{before, after} {
		holdsCut(t, &j.d, j.store.saves()[i], cut)
	}
	if !slices.Equal(before, []uint64{0, 0, 0}) || !slices.Equal(after, []uint64{0, 9, 9}) {
		t.Errorf("cuts %v and %v", before, after)
	}
	leave(t, j, members[:1])
}

func TestMisuseOfConcludeIsRefused(t *testing.T) {
	for mode, want := range map[string]string{"sync": "the last one of all workers", "async": "only worker:0 can"} {
		j := newJob(t, in(mode, example(2, 2)), policy.Servers, 1)
		members := j.connect(t)
		m := members[0]
		if mode == "async" {
			m = members[1]
		}
		if _, err := m.Saves.Conclude(context.Background(), patience.Limit); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", mode, err)
		}
		leave(t, j, members)
	}
}

// If too few workers remain after the chief concludes, they receive Over.
func TestTooFewWorkersRemainAfterChiefConcludes(t *testing.T) {
	j := newJob(t, in("backup:0", example(2, 2)), policy.Servers, 2)
	members := j.connect(t)
	_, errs := step(members, 0, 0.05)
	must(t, errs)
	cut := members[0].final(t)
	ended := make(chan Outcome, 1)
	go func() {
		end, err := members[1].take(context.Background(), 1, 0.05, everyLeaf)
		if err != nil {
			t.Error(err)
		}
		ended <- end
	}()
	if end := within(t, ended); !end.Over {
		t.Errorf("%+v", end)
	}
	if err := members[1].Close(); err != nil {
		t.Error(err)
	}
	if got := within(t, cut); !slices.Equal(got, []uint64{1}) {
		t.Errorf("cut %v", got)
	}
	leave(t, j, members[:1])
}

// If a group needs the chief for another step after the chief has concluded,
// both get an error.
func TestGroupCannotContinueAfterChiefConcludes(t *testing.T) {
	for _, before := range []bool{false, true} {
		j := newJob(t, in("group:2", example(4, 4)), policy.Servers, 1)
		members := j.connect(t)
		begun := make(chan error, 1)
		go1 := func() {
			go func() {
				_, err := members[1].take(context.Background(), 0, 0.05, everyLeaf)
				begun <- err
			}()
		}
		if before {
			go1()
			eventually(t, "worker:1 has begun", func() bool { return serverOf(t, j, 0).Workers()[1].Steps == 1 })
		}
		failed := make(chan error, 1)
		go func() {
			_, err := members[0].Saves.Conclude(context.Background(), patience.Limit)
			failed <- err
		}()
		if !before {
			go1()
		}
		for _, err := range []error{within(t, begun), within(t, failed)} {
			if err == nil || !strings.Contains(err.Error(), "all workers must take the same number of steps") {
				t.Errorf("%v", err)
			}
		}
	}
}

// The chief may conclude while gradients of an accepted step, which will not
// be completed, are still arriving.
func TestFinalCutWhileChiefStillSendsGradients(t *testing.T) {
	j := newJob(t, in("backup:0", example(2, 2)), policy.Servers, 1)
	members := j.connect(t)
	if err := members[0].holders.links[0].session.Send(wire.Frame{Header: wire.Header{Kind: wire.Commit}}); err != nil {
		t.Fatal(err)
	}
	if r := within(t, members[0].holders.verdicts); r.verdict != policy.Accepted {
		t.Fatalf("%+v", r)
	}
	members[0].brings(t, j, 0, 1)
	if err := members[1].Close(); err != nil {
		t.Fatal(err)
	}
	if r := within(t, members[0].holders.verdicts); r.verdict != policy.Over {
		t.Fatalf("%+v", r)
	}
	if cut := within(t, members[0].final(t)); !slices.Equal(cut, []uint64{0}) {
		t.Errorf("cut %v", cut)
	}
	leave(t, j, members[:1])
}

// A worker that says goodbye before all workers are ready is refused, even if
// another worker already waits for it.
func TestGoodbyeBeforeAllWorkersAreReadyIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	t.Parallel()
	d := counting("ssp:1", 3)
	d.Checkpoint, d.First, d.Cut = "the cut", 0, []uint64{0, 2, 5}
	j := newJob(t, d, policy.Servers, 1)
	j.store.has = nothing(&j.d)
	c := proven(t, j, 0, 0)
	w := wire.NewConn(c, 0, patience.Limit)
	declares(t, w, &j.d)
	eventually(t, "worker:0 has declared", func() bool { return j.served[0].Shards() != nil })
	if err := w.Send(wire.Frame{Header: wire.Header{Kind: wire.Bye}}); err != nil {
		t.Fatal(err)
	}
	blames(t, within(t, j.ended[0]), worker(0), "before all workers were ready")
}

// declares sends a declaration as the first frame, like a worker.
func declares(t *testing.T, conn *wire.Conn, d *layout.Declaration) {
	t.Helper()
	body, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Declare}, Payload: body}); err != nil {
		t.Fatal(err)
	}
}
