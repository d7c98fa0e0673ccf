package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// base is the base of a number that has one digit per worker: its count of
// applied steps. Four digits fit in the 24 bits of a float32.
const base = 1 << 6

// digits takes a number apart.
func digits(x float64, workers int) (steps []uint64) {
	for n := uint64(x); len(steps) < workers; n /= base {
		steps = append(steps, n%base)
	}
	return steps
}

// adds takes steps that increment this worker's digit, until it has taken to
// steps.
func (m *member) adds(t *testing.T, to uint64, before func()) {
	for m.Step() < to {
		if before != nil {
			before()
		}
		if _, err := m.add(float64(uint64(1) << (6 * m.rank))); err != nil {
			t.Errorf("worker:%d: %v", m.rank, err)
			return
		}
	}
}

// works calls adds and then closes the worker.
func (m *member) works(t *testing.T, to uint64) {
	m.adds(t, to, nil)
	if err := m.Close(); err != nil {
		t.Errorf("worker:%d: %v", m.rank, err)
	}
}

// holdsCut checks that all pieces contain exactly the steps of a cut, for each
// worker.
func holdsCut(t *testing.T, d *layout.Declaration, all []transition.Snapshot, cut []uint64) {
	t.Helper()
	if len(all) != len(d.Holders) {
		t.Fatalf("%d of %d shard holders have saved", len(all), len(d.Holders))
	}
	for _, x := range all {
		for _, k := range x.Pieces {
			if got := digits(downBy(t, d, k), len(cut)); !slices.Equal(got, cut) {
				t.Errorf("%s has of variable %d steps %v of the workers, of the cut %v", x.Holder, k.Variable, got, cut)
			}
		}
	}
}

// fromZeros starts a job whose variables are initially zero.
func fromZeros(t *testing.T, d layout.Declaration, servers int) (*testJob, []*member) {
	t.Helper()
	j := newJob(t, d, policy.Servers, servers)
	j.zeros = true
	return j, j.connect(t)
}

// savedTimes waits until every shard holder has saved n times.
func (j *testJob) savedTimes(t *testing.T, n int) {
	t.Helper()
	eventually(t, "everything was saved", func() bool {
		all := j.store.saves()
		return len(all) == n && len(all[n-1]) == len(j.d.Holders)
	})
}

// After a restore from a cut, every worker resumes at its own step. At the end
// each of its steps was applied exactly once, even if workers were lost in
// between.
func TestTrainingResumesFromCut(t *testing.T) {
	const steps = 16
	for _, mode := range []string{"async", "ssp:0", "ssp:2"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			first := counting(mode, 4)
			j, members := fromZeros(t, first, 3)
			var running sync.WaitGroup
			var cuts [][]uint64
			for _, m := range members {
				running.Go(func() {
					m.adds(t, steps, func() {
						if m.rank == 0 {
							cuts = append(cuts, m.saveCut(t, Passing))
						}
					})
				})
			}
			running.Wait()
			leave(t, j, members)
			for i, all := range j.store.saves() {
				holdsCut(t, &j.d, all, cuts[i])
			}
			at := len(cuts) / 2
			finish(t, first, j.store.saves()[at], cuts[at], steps)
		})
	}
}

// finish resumes from a cut with a different number of servers, and trains to
// the end.
func finish(t *testing.T, d layout.Declaration, from []transition.Snapshot, cut []uint64, steps uint64) {
	t.Helper()
	d.Checkpoint, d.First, d.Cut = "the cut", cut[0], cut
	j := newJob(t, d, policy.Servers, 2)
	j.store.fill(from)
	members := j.connect(t)
	var running sync.WaitGroup
	for rank, m := range members {
		running.Go(func() {
			if m.Step() != cut[rank] {
				t.Errorf("worker:%d begins with step %d of the cut %v", rank, m.Step(), cut)
			}
			if err := m.Resume(context.Background()); err != nil {
				t.Errorf("worker:%d: %v", rank, err)
			}
			m.adds(t, steps, nil)
		})
	}
	running.Wait()
	if t.Failed() {
		t.FailNow()
	}
	members[0].saveCut(t, Passing)
	j.savedTimes(t, 1)
	holdsCut(t, &j.d, j.store.saves()[0], slices.Repeat([]uint64{steps}, len(members)))
	leave(t, j, members)
}

// A worker that was ahead of others when the cut was saved must wait for them
// in Resume, before its first step.
func TestResumeWaitsForSlowerWorkers(t *testing.T) {
	d := counting("ssp:2", 3)
	d.Checkpoint, d.First, d.Cut = "the cut", 5, []uint64{5, 8, 7}
	j := newJob(t, d, policy.Servers, 2)
	j.store.has = nothing(&j.d)
	members := j.connect(t)
	if err := members[1].Begin(1); err == nil || !strings.Contains(err.Error(), "before Resume") {
		t.Errorf("worker:1 begins: %v", err)
	}
	resumed := make(chan error, 1)
	go func() { resumed <- members[1].Resume(context.Background()) }()
	answered := make(chan error, 1)
	go func() {
		_, err := members[2].count() // takes its eighth step, whose outcome is also delayed
		answered <- err
	}()
	eventually(t, "both wait", func() bool { return kept(t, j, 1, 8) && kept(t, j, 2, 8) })
	select {
	case err := <-resumed:
		t.Fatalf("worker:1 goes on with step 8, worker:0 has made 5: %v", err)
	case err := <-answered:
		t.Fatalf("worker:2 goes on with step 8, worker:0 has made 5: %v", err)
	default:
	}
	if _, err := members[0].count(); err != nil {
		t.Fatal(err)
	}
	for _, over := range []chan error{resumed, answered} {
		if err := within(t, over); err != nil {
			t.Fatal(err)
		}
	}
	if first := wire.Floats[float32](members[1].values[0])[0]; members[1].Step() != 8 || first != -2 {
		t.Errorf("worker:1 begins with step %d and values that went down by %v, want 8 and 2", members[1].Step(), -first)
	}
	var running sync.WaitGroup
	for _, m := range members {
		running.Go(func() { m.adds(t, 10, nil) })
	}
	running.Wait()
	leave(t, j, members)
}

// A worker in Resume does not wait for workers that have left or are lost,
// whether these leave before or during Resume.
func TestResumeDoesNotWaitForWorkersThatLeft(t *testing.T) {
	for _, before := range []bool{true, false} {
		d := counting("ssp:1", 3)
		d.Checkpoint, d.First, d.Cut = "the cut", 9, []uint64{9, 2, 3}
		j := newJob(t, d, policy.Servers, 2)
		j.store.has = nothing(&j.d)
		members := j.connect(t)
		resumed := make(chan error, 1)
		resume := func() { resumed <- members[0].Resume(context.Background()) }
		if before {
			go resume()
			eventually(t, "worker:0 waits", func() bool { return kept(t, j, 0, 9) })
		}
		die(members[1])
		if err := members[2].Close(); err != nil {
			t.Error(err)
		}
		if !before {
			go resume()
		}
		if err := within(t, resumed); err != nil {
			t.Fatal(err)
		}
		members[0].adds(t, 11, nil)
		if cut := within(t, members[0].final(t)); !slices.Equal(cut, []uint64{11, 2, 3}) {
			t.Errorf("cut %v", cut)
		}
		leave(t, j, members[:1])
	}
}

// nothing returns a checkpoint of zeros for an optimiser without state.
func nothing(d *layout.Declaration) (all []aggregate.SavedPiece) {
	for i, v := range d.Variables {
		k := aggregate.SavedPiece{Variable: i, Count: v.Units(), Rows: []int64{}}
		if v.Sparse == nil {
			k.Rows, k.Values = nil, make([]byte, v.Units()*v.UnitBytes())
		}
		all = append(all, k)
	}
	return all
}

// While a Holding cut delays the other workers, none of their steps is
// applied, and none is lost.
func TestHoldingCutDelaysOtherWorkers(t *testing.T) {
	const steps = 12
	for _, mode := range []string{"async", "ssp:20"} {
		j, members := fromZeros(t, counting(mode, 4), 3)
		members[0].adds(t, 1, nil)
		cut := members[0].saveCut(t, Holding)
		var running sync.WaitGroup
		for _, m := range members[1:] {
			running.Go(func() { m.adds(t, steps, nil) })
		}
		eventually(t, "all wait", func() bool { return heldBack(t, j, 3) })
		if err := members[0].Saves.Save(); err == nil || !strings.Contains(err.Error(), "without requesting a cut") {
			t.Errorf("saved again: %v", err)
		}
		running.Go(func() { members[0].adds(t, steps, nil) })
		running.Wait()
		members[0].saveCut(t, Passing)
		j.savedTimes(t, 2)
		holdsCut(t, &j.d, j.store.saves()[0], cut)
		holdsCut(t, &j.d, j.store.saves()[1], slices.Repeat([]uint64{steps}, 4))
		leave(t, j, members)
	}
}

// heldBack reports whether on every server the given number of workers have
// sent a whole step that is not applied yet.
func heldBack(t *testing.T, j *testJob, workers int) bool {
	for i := range j.served {
		s := serverOf(t, j, i)
		if _, held := s.Shards().Waiting(); held != workers*len(s.Shards().All()) {
			return false
		}
	}
	return true
}

// A cut after the last step of all workers contains all steps.
func TestCutAfterLastStepHasAllSteps(t *testing.T) {
	const steps = 20
	for _, mode := range []string{"async", "ssp:1"} {
		j, members := fromZeros(t, counting(mode, 4), 3)
		var running sync.WaitGroup
		for _, m := range members[1:] {
			running.Go(func() { m.works(t, steps) })
		}
		members[0].adds(t, steps, nil)
		if cut := within(t, members[0].final(t)); !slices.Equal(cut, []uint64{steps, steps, steps, steps}) {
			t.Errorf("cut %v", cut)
		}
		running.Wait()
		j.savedTimes(t, 1)
		holdsCut(t, &j.d, j.store.saves()[0], []uint64{steps, steps, steps, steps})
		leave(t, j, members[:1])
	}
}

// A lost worker does not prevent a cut from being completed.
func TestCutSucceedsAfterWorkerIsLost(t *testing.T) {
	const steps = 30
	for _, mode := range []string{"async", "ssp:30"} {
		j, members := fromZeros(t, counting(mode, 4), 3)
		var running sync.WaitGroup
		for _, m := range members[1:3] {
			running.Go(func() { m.works(t, steps) })
		}
		running.Go(func() {
			members[3].adds(t, 4, nil)
			die(members[3])
		})
		saves := 1
		members[0].adds(t, steps, func() { members[0].saveCut(t, Passing); saves++ })
		cut := within(t, members[0].final(t))
		running.Wait()
		if want := []uint64{steps, steps, steps, 4}; !slices.Equal(cut, want) {
			t.Errorf("cut %v, want %v", cut, want)
		}
		j.savedTimes(t, saves)
		holdsCut(t, &j.d, j.store.saves()[saves-1], cut)
		leave(t, j, members[:1])
	}
}

// An invalid frame about a cut ends the training with an explanation.
func TestInvalidCutFramesEndTraining(t *testing.T) {
	ask := wire.Frame{Header: wire.Header{Kind: wire.Cut}}
	save := func(steps ...uint64) wire.Frame {
		return wire.Frame{Header: wire.Header{Kind: wire.Save}, Payload: message.EncodeCut(steps)}
	}
	for name, c := range map[string]struct {
		rank   int
		frames []wire.Frame
		want   string
	}{
		"not the chief":         {1, []wire.Frame{ask}, "unexpected cut frame"},
		"of no kind":            {0, []wire.Frame{{Header: wire.Header{Kind: wire.Cut, Part: uint32(message.CutKinds)}}}, "unexpected cut frame"},
		"with a payload":        {0, []wire.Frame{frame(wire.Cut, 0, 0, 0, 8)}, "unexpected cut frame"},
		"concluded by it":       {1, []wire.Frame{{Header: wire.Header{Kind: wire.Alone}}}, "unexpected alone frame"},
		"step after concluding": {0, []wire.Frame{{Header: wire.Header{Kind: wire.Alone}}, stepFrame(0, 1)}, "stopped after 0 steps"},
		"twice":                 {0, []wire.Frame{ask, ask}, "before the previous one is saved"},
		"saved unasked":         {0, []wire.Frame{save(0, 0)}, "that was not requested"},
		"asked in between":      {0, []wire.Frame{ask, ask, save(0, 0)}, "before the previous one is saved"},
		"saved twice":           {0, []wire.Frame{ask, save(0, 0), save(0, 0)}, "that was not requested"},
		"too few groups":        {0, []wire.Frame{ask, save(0)}, "save frame of 8 bytes, want 16"},
		"too many groups":       {0, []wire.Frame{ask, save(0, 0, 0)}, "save frame of 24 bytes, want 16"},
		"too far":               {0, []wire.Frame{ask, save(0, 2)}, "of group 1 after 2 steps"},
		"beyond all steps":      {0, []wire.Frame{ask, save(0, layout.MaxFirst+1)}, "steps of a group"},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t, in("group:2", example(2, 2)), policy.Servers, 1)
			members := j.connect(t)
			if err := members[c.rank].holders.links[0].session.Send(c.frames...); err != nil {
				t.Fatal(err)
			}
			blames(t, within(t, j.ended[0]), worker(c.rank), c.want)
		})
	}
}

// If a shard holder sends an invalid reply to a Cut frame, the error blames
// that holder.
func TestInvalidRepliesToCutEndTraining(t *testing.T) {
	for name, c := range map[string]struct {
		mode   string
		frames []wire.Frame
		want   string
	}{
		"in step":                    {"sync", []wire.Frame{frame(wire.Cut, 0, 0, 0, 8)}, "unexpected cut frame"},
		"of no groups":               {"async", []wire.Frame{frame(wire.Cut, 0, 0, 0, 8)}, "cut frame of 8 bytes, want 16"},
		"alone in step":              {"sync", []wire.Frame{frame(wire.Alone, 0, 0, 0, 0)}, "unexpected alone frame"},
		"two reports of being alone": {"async", []wire.Frame{frame(wire.Alone, 0, 0, 0, 0), frame(wire.Alone, 0, 0, 0, 0)}, "reported twice"},
		"two replies":                {"async", []wire.Frame{frame(wire.Cut, 0, 0, 0, 16), frame(wire.Cut, 0, 0, 0, 16)}, "sent two replies"},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t, in(c.mode, example(2, 2)), policy.Servers, 1)
			members := j.connect(t)
			j.sends(t, serverOf(t, j, 0), 1, c.frames...)
			within(t, members[1].holders.ctx.Done())
			blames(t, members[1].holders.reason(), server0(0), c.want)
		})
	}
}

func TestMisuseOfCutIsRefused(t *testing.T) {
	j := newJob(t, in("async", example(2, 2)), policy.Servers, 1)
	members := j.connect(t)
	if _, err := members[1].Saves.Cut(context.Background(), Passing); err == nil || !strings.Contains(err.Error(), "only worker:0 can") {
		t.Errorf("another worker: %v", err)
	}
	if err := members[0].Saves.Save(); err == nil || !strings.Contains(err.Error(), "without requesting a cut") {
		t.Errorf("without a cut: %v", err)
	}
	if _, err := members[0].Saves.Cut(context.Background(), Passing); err != nil {
		t.Fatal(err)
	}
	if _, err := members[0].Saves.Cut(context.Background(), Passing); err == nil || !strings.Contains(err.Error(), "two cuts before step 0") {
		t.Errorf("a second cut: %v", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	if err := members[0].Saves.Save(); err != nil {
		t.Fatal(err)
	}
	if _, err := members[0].Saves.Conclude(ctx, patience.Limit); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("a cut that nobody waits for: %v", err)
	}
}

func TestInvalidCutInDeclarationIsRefused(t *testing.T) {
	for _, c := range []struct {
		mode  string
		first uint64
		cut   []uint64
		fine  bool
	}{
		{"async", 3, []uint64{3, 4, 1}, true}, {"ssp:1", 0, []uint64{0, 0, 7}, true}, {"group:2", 3, []uint64{3, 2}, true}, {"backup:1", 3, []uint64{3}, true},
		{"sync", 3, []uint64{3}, false}, {"async", 3, []uint64{3, 4}, false}, {"async", 3, []uint64{4, 3, 3}, false},
		{"async", 3, []uint64{3, layout.MaxFirst + 1, 3}, false}, {"async", 3, []uint64{}, false},
	} {
		d := in(c.mode, example(3, 3))
		if err := d.AssignPieces(policy.Servers, 1, 0); err != nil {
			t.Fatal(err)
		}
		d.Checkpoint, d.First, d.Cut = "x", c.first, c.cut
		if err := d.Check(); (err == nil) != c.fine {
			t.Errorf("%s, step %d, cut %v: %v", c.mode, c.first, c.cut, err)
		}
	}
}

// If a lost worker's step has arrived at only one server, the other servers do
// not wait for it, whether the worker is lost before or during the cut.
func TestCutDoesNotWaitForStepOfLostWorker(t *testing.T) {
	for _, late := range []bool{false, true} {
		j := newJob(t, in("async", example(4, 4)), policy.Servers, 3)
		members := j.connect(t)
		members[3].brings(t, j, 0, len(j.d.PiecesOf(0)))
		first := serverOf(t, j, 0)
		eventually(t, "the step is there", func() bool { return first.Shards().Steps()[3] == 1 })
		if !late {
			die(members[3])
		}
		cut, err := members[0].Saves.Cut(context.Background(), Passing)
		if want := []uint64{0, 0, 0, 1}; err != nil || !slices.Equal(cut, want) {
			t.Fatalf("cut %v, %v, want %v", cut, err, want)
		}
		if err := members[0].Saves.Save(); err != nil {
			t.Fatal(err)
		}
		if late {
			die(members[3])
		}
		j.saved(t, j.d.Pieces, 0)
		leave(t, j, members[:3])
	}
}
