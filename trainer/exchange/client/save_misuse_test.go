package client

import (
	"context"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/exchange/server"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// An invalid call of Save returns an error and changes nothing.
func TestMisuseOfSaveIsRefused(t *testing.T) {
	for want, do := range map[string]func(members []*member) error{
		"worker:1 cannot save: only worker:0 can": func(members []*member) error { return members[1].Saves.Save() },
		"saved twice before step 1": func(members []*member) error {
			if err := members[0].Saves.Save(); err != nil {
				return err
			}
			return members[0].Saves.Save()
		},
		"no checkpoint store is configured": func(members []*member) error {
			members[0].holders.config.Checkpoints = nil
			return members[0].Saves.Save()
		},
	} {
		for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce} {
			j := newJob(t, example(2, 2), a, 1)
			members := j.connect(t)
			_, errs := step(members, 0, 0.1)
			must(t, errs)
			if err := do(members); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", a, err, want)
			}
			_, errs = step(members, 1, 0.1)
			must(t, errs)
			leave(t, j, members)
		}
	}
}

func TestSaveDuringStepIsRefused(t *testing.T) {
	j := newJob(t, example(1, 1), policy.Servers, 1)
	m := j.connect(t)[0]
	if err := m.Begin(0.1); err != nil {
		t.Fatal(err)
	}
	if err := m.Saves.Save(); err == nil || !strings.Contains(err.Error(), "not in step 0") {
		t.Errorf("got %v", err)
	}
	m.compute(context.Background(), 0, 0)
	if end, err := m.Finish(context.Background(), [][]float64{{1}}); err != nil || end.Saved {
		t.Errorf("%+v, %v", end, err)
	}
	leave(t, j, []*member{m})
	if len(j.store.took) > 0 {
		t.Errorf("%d snapshots", len(j.store.took))
	}
	if err := m.Saves.Save(); err == nil {
		t.Error("saved after the end")
	}
}

// If a shard holder without Checkpoints must save, all tasks report that.
func TestHolderWithoutCheckpointsCannotSave(t *testing.T) {
	for a, task := range map[policy.Architecture]cluster.Task{policy.Servers: server0(0), policy.AllReduce: worker(1)} {
		j := newJob(t, example(2, 2), a, 1)
		if a == policy.Servers {
			j.again(t, 0, func(c *server.Config) { c.Checkpoints = nil })
		}
		j.bare = []cluster.Task{task}
		members := j.connect(t)
		members[0].Saves.Save() // an error is allowed: the holder's report may already have arrived
		_, errs := step(members, 0, 0.1)
		for _, err := range errs {
			blames(t, err, task, "cannot save its variables: no checkpoint store is configured")
		}
	}
}

// If a shard holder is lost, Save or the next step returns an error that
// blames it.
func TestSaveReportsLostHolder(t *testing.T) {
	for a, task := range map[policy.Architecture]cluster.Task{policy.Servers: server0(1), policy.AllReduce: worker(1)} {
		j := newJob(t, mixed(3, 3), a, 2)
		members := j.connect(t)
		if a == policy.Servers {
			go j.stop[1]()
		} else {
			die(members[1])
		}
		var err error
		for s := uint64(0); err == nil; s++ { // until it is noticed
			if err = members[0].Saves.Save(); err == nil {
				var errs []error
				if _, errs = step(members, s, 0.1); errs[0] != nil {
					err = errs[0]
				}
			}
		}
		blames(t, err, task, "")
		if again := members[0].Saves.Save(); again == nil {
			t.Errorf("%s: saved after %v", a, err)
		}
	}
}

// A Save frame at the wrong time, or from another worker than the chief, ends
// the training with an explanation.
func TestInvalidSaveFramesEndTraining(t *testing.T) {
	save := func(step uint64, size int) wire.Frame { return frame(wire.Save, 0, 0, step, size) }
	begin := wire.Frame{Header: wire.Header{Kind: wire.Step, Step: 5}, Payload: message.EncodeBeginning(nil, aggregate.Beginning{Rate: 0.1, Present: []int{1}})}
	for name, c := range map[string]struct {
		rank   int
		frames []wire.Frame
		want   string
	}{
		"not the chief":               {1, []wire.Frame{save(5, 0)}, "unexpected save frame"},
		"with a payload":              {0, []wire.Frame{save(5, 3)}, "with 3 bytes"},
		"an earlier step":             {0, []wire.Frame{save(4, 0)}, "save frame for step 4"},
		"a later step":                {0, []wire.Frame{save(6, 0)}, "save frame for step 6"},
		"in a step":                   {0, []wire.Frame{begin, save(6, 0)}, "gradients to come"},
		"twice":                       {0, []wire.Frame{save(5, 0), save(5, 0)}, "saves twice before step 5"},
		"begins an earlier step":      {1, []wire.Frame{stepFrame(0, 1)}, "begins step 0 during step 5"},
		"begins a later step":         {1, []wire.Frame{stepFrame(6, 1)}, "begins step 6 during step 5"},
		"gradient of an earlier step": {1, []wire.Frame{frame(wire.Push, 0, 1, 4, 60)}, "5 steps were begun"},
		"gradient too soon":           {1, []wire.Frame{frame(wire.Push, 0, 1, 5, 60)}, "5 steps were begun"},
		"rows of an earlier step":     {1, []wire.Frame{frame(wire.Prefetch, 0, 0, 4, 1)}, "wants rows of step 4, 5 steps were begun"},
	} {
		t.Run(name, func(t *testing.T) {
			d := mixed(2, 2)
			d.Metrics = 0
			j := restored(t, d, 5, policy.Servers, 1)
			members := j.connect(t)
			if err := members[c.rank].holders.links[0].session.Send(c.frames...); err != nil {
				t.Fatal(err)
			}
			blames(t, within(t, j.ended[0]), worker(c.rank), c.want)
		})
	}
}

// The first worker of a host holds no shards and refuses Save frames.
func TestAggregatorRefusesToSave(t *testing.T) {
	j, members := pair(t)
	if err := members[1].holders.up.session.Send(frame(wire.Save, 0, 0, 0, 0)); err != nil {
		t.Fatal(err)
	}
	_, err := members[0].take(context.Background(), 0, 0.1, everyLeaf)
	blames(t, err, worker(1), "unexpected save frame")
	blames(t, within(t, j.ended[0]), worker(1), "unexpected save frame")
}

func TestInvalidFirstStepIsRefused(t *testing.T) {
	for _, c := range []struct {
		checkpoint string
		first      uint64
		fine       bool
	}{
		{"", 0, true}, {"x", 0, true}, {"x", layout.MaxFirst, true}, {strings.Repeat("x", layout.MaxCheckpoint), 1, true},
		{"", 3, false}, {"x", layout.MaxFirst + 1, false}, {strings.Repeat("x", layout.MaxCheckpoint+1), 1, false},
	} {
		d := example(1, 1)
		if err := d.AssignPieces(policy.Servers, 1, 0); err != nil {
			t.Fatal(err)
		}
		d.Checkpoint, d.First = c.checkpoint, c.first
		if err := d.Check(); (err == nil) != c.fine || !c.fine && !strings.Contains(err.Error(), "from checkpoint") {
			t.Errorf("step %d from checkpoint %q: got %v", c.first, c.checkpoint, err)
		}
	}
}
