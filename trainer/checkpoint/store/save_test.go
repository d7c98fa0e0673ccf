package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// impatience is a short Config.Silence, for tests in which that timeout
// expires.
const impatience = 1500 * time.Millisecond

func pieceOf(variable int) layout.Piece { return layout.Piece{Variable: variable, Count: 1} }

// trained returns a job on two hosts that has saved one checkpoint, of step 1.
func trained(t *testing.T, silence time.Duration) (*testJob, *twin, *layout.Declaration, string) {
	t.Helper()
	random := rand.New(rand.NewPCG(9, 9))
	root := t.TempDir()
	j := opened(t, root, shape{servers: 1, workers: 3, hosts: []string{"a", "b"}, silence: silence})
	w := newTwin(random, optimizer.Adam)
	d := w.Declare(random, j.tasks, "")
	j.choose()
	j.save(w, 1, d)
	return j, w, d, root
}

// A fault at any place of a save causes one warning that names the place.
// Training gets no error, earlier checkpoints stay, and the next save
// succeeds.
func TestFaultFailsOnlyTheSave(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, test := range []struct {
		at    cluster.Task
		place string
		says  []string
	}{
		{worker(0), "store.write", []string{"worker:0 on b: checkpoint", "write worker-0."}},
		{worker(1), "store.write", []string{"worker:1 on a: checkpoint", "worker-1."}},
		{ps(0), "store.read", []string{"ps:0 on a: second copy of ps-0.safetensors at worker:0 on b"}},
		{worker(2), "store.copy", []string{": second copy of ", " at worker:2 on b"}},
		{worker(0), "store.copy", []string{": second copy of ", " at worker:0 on b"}},
		{ps(0), "store.report", []string{"ps:0 on a: "}},
		{worker(0), "store.manifest", nil},
		{ps(0), "store.ack", []string{"ps:0 on a: "}},
		{worker(0), "store.ack", []string{"worker:0 on b: "}},
	} {
		t.Run(fmt.Sprint(test.at, test.place), func(t *testing.T) {
			j, w, d, root := trained(t, patience.Limit)
			var hit atomic.Bool
			j.fault(test.at, at(test.place, func() error {
				hit.Store(true)
				return errors.New("a fault")
			}))
			j.expect(w, 2, d)
			j.give(w, 2, d)
			if err := j.chief().Wait(soon(t)); err == nil || !strings.Contains(err.Error(), "checkpoint of step 2: ") || !strings.Contains(err.Error(), "a fault") {
				t.Errorf("wait: %v", err)
			}
			if !hit.Load() {
				t.Error("the fault was not met")
			}
			j.says(append([]string{"WARN worker:0", "checkpoint of step 2 has failed", "a fault"}, test.says...)...)
			if test.place != "store.ack" {
				eventually(t, "what there was of it is gone", func() bool {
					return len(files(t, root, "000000000002-*")) == 0
				})
			}
			if got := files(t, root, "000000000001-*/manifest.json"); len(got) != 2 {
				t.Errorf("manifests before: %q", got)
			}
			j.fault(test.at, nil)
			j.save(w, 3, d)
			if s := j.chief().Summary(); s.Saved != 2 || s.Failed != 1 {
				t.Errorf("summary %+v", s)
			}
			j.end()
			if got := j.lines("WARN"); len(got) != 1 {
				t.Errorf("warns %q", got)
			}
		})
	}
}

// If the buddy's disk hangs, the save fails after a timeout. Training does not
// wait at all.
func TestHangingBuddyFailsSave(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	j, w, d, _ := trained(t, impatience)
	release := make(chan struct{})
	j.fault(worker(2), at("store.copy", func() error { <-release; return nil }))
	j.expect(w, 2, d)
	began := time.Now()
	j.give(w, 2, d)
	if took := time.Since(began); took >= impatience { // the timeout that the save needs to give up the buddy
		t.Errorf("the training stood still for %v", took)
	}
	if err := j.chief().Wait(soon(t)); err == nil || !strings.Contains(err.Error(), "at worker:2 on b: ") || !strings.Contains(err.Error(), "nothing moved") {
		t.Errorf("%v", err)
	}
	close(release)
	j.fault(worker(2), nil)
	j.save(w, 3, d)
	j.end()
}

// If a task's disk hangs, the save fails after a timeout, and Close does not
// wait for the write.
func TestHangingDiskFailsSave(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	j, w, d, _ := trained(t, impatience)
	release := make(chan struct{})
	j.fault(worker(1), at("store.write", func() error { <-release; return nil }))
	j.expect(w, 2, d)
	j.give(w, 2, d)
	if err := j.chief().Wait(soon(t)); err == nil || !strings.Contains(err.Error(), "worker:1 on a: ") || !strings.Contains(err.Error(), "nothing moved for 1.5s") {
		t.Errorf("%v", err)
	}
	if err := j.stores[worker(1)].Close(); err == nil || !strings.Contains(err.Error(), "hangs") {
		t.Errorf("close: %v", err)
	}
	close(release)
}

// If a task is lost while it writes or copies a file, the save fails. A later
// save that needs the task fails as well.
func TestLostTaskFailsSave(t *testing.T) {
	for _, place := range []string{"store.write", "store.copy"} {
		j, w, d, _ := trained(t, patience.Limit)
		lost := j.stores[worker(1)]
		j.fault(worker(1), at(place, func() error { lost.life.Cancel(); return nil }))
		j.expect(w, 2, d)
		j.give(w, 2, d)
		if err := j.chief().Wait(soon(t)); err == nil || !strings.Contains(err.Error(), "worker:1") {
			t.Errorf("%s: %v", place, err)
		}
		eventually(t, "the chief knows", func() bool {
			return j.chief().chief.roster.member(worker(1)).lost()
		})
		j.expect(w, 3, d)
		if err := j.chief().Wait(soon(t)); err == nil || !strings.Contains(err.Error(), "worker:1 on a: it has left") {
			t.Errorf("%s: %v", place, err)
		}
		j.kill()
	}
}

// If a task is lost before it has written its part, the save fails without a
// timeout.
func TestTaskLostBeforeItsReportFailsSave(t *testing.T) {
	j, w, d, _ := trained(t, patience.Limit)
	j.expect(w, 2, d)
	j.give(w, 2, d, worker(1))
	j.stores[worker(1)].life.Cancel()
	if err := j.chief().Wait(soon(t)); err == nil || !strings.Contains(err.Error(), "worker:1 ") || !strings.Contains(err.Error(), "connection lost") {
		t.Errorf("%v", err)
	}
	j.kill()
}

// lose simulates the death of a task, and waits until the chief has noticed
// it.
func (j *testJob) lose(task cluster.Task) {
	j.t.Helper()
	j.stores[task].life.Cancel()
	eventually(j.t, "the chief knows", func() bool {
		return j.chief().chief.roster.member(task).lost()
	})
}

// Workers without pieces of variables are lost, one after the other. A save
// without a part for the lost worker succeeds. A save whose second copy the
// worker should keep fails with a warning. Later second copies go to a task on
// another remaining host.
func TestSavesContinueWithoutLostWorkers(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	root := t.TempDir()
	nobody := cluster.Task{}
	j := opened(t, root, shape{servers: 1, workers: 4, hosts: []string{"a", "a", "b", "b", "c"}})
	w := newTwin(random, optimizer.Adam)
	d := w.Declare(random, []cluster.Task{ps(0)}, "")
	j.choose()
	pieces := transition.Snapshot{Declaration: d, Holder: ps(0), Held: 1}
	for _, p := range d.Pieces {
		pieces.Pieces = append(pieces.Pieces, w.Kept(p))
	}
	for _, c := range []struct {
		lost cluster.Task // during the save
		on   []string     // hosts that have the file after the save; nil means that the save fails
	}{
		{worker(2), []string{"a", "b"}}, {worker(1), nil}, {nobody, []string{"a", "c"}}, {worker(3), nil}, {nobody, []string{"a"}},
	} {
		pieces.Step++
		if err := j.chief().Expect(Expected{Manifest: w.Manifest(pieces.Step), Holders: []cluster.Task{ps(0)}}); err != nil {
			t.Fatal(err)
		}
		if c.lost != nobody {
			j.lose(c.lost)
		}
		j.stores[ps(0)].Save(pieces)
		err := j.chief().Wait(soon(t))
		if (err == nil) != (c.on != nil) {
			t.Errorf("step %d: %v", pieces.Step, err)
		}
		var on []string
		for _, path := range files(t, root, fmt.Sprintf("%012d-*/ps-0.safetensors", pieces.Step)) {
			on = append(on, filepath.Base(filepath.Dir(filepath.Dir(path))))
		}
		if c.on != nil && !slices.Equal(on, c.on) {
			t.Errorf("step %d is on %q, want %q", pieces.Step, on, c.on)
		}
	}
	if all := len(j.lines("WARN")); all != 2 || len(j.lines("WARN", "checkpoint of step 2 has failed", "worker:1")) != 1 {
		t.Errorf("warns %q", j.lines("WARN"))
	}
	j.kill()
}

// If the second copy of a file differs from the original, the save fails.
func TestDifferentCopyFailsSave(t *testing.T) {
	j, w, d, _ := trained(t, patience.Limit)
	for _, task := range []cluster.Task{ps(0), worker(0), worker(1)} {
		j.listeners[task].Handle("checkpoint-read", func(p peers.Peer) {
			s := peers.NewSession(p, 0, patience.Limit)
			defer s.Close()
			for {
				var m struct {
					Offset uint64 `json:"offset,omitempty"`
					Length uint64 `json:"length"`
				}
				err := s.NextJSON(wire.Message, &m, 1<<16)
				if err == nil {
					err = s.SendJSON(wire.Message, m, 1<<16)
				}
				if err == nil {
					err = s.Send(wire.Frame{Header: wire.Header{Kind: wire.Chunk, Offset: m.Offset}, Payload: make([]byte, m.Length)})
				}
				if err != nil {
					return // it has enough
				}
			}
		})
	}
	j.expect(w, 2, d)
	j.give(w, 2, d)
	if err := j.chief().Wait(soon(t)); err == nil || !strings.Contains(err.Error(), "the copy has ") || !strings.Contains(err.Error(), " and checksum ") {
		t.Errorf("%v", err)
	}
	j.kill()
}

// After the loss of the chief, the other tasks give up the save and wait for
// no task.
func TestLossOfChiefEndsWaits(t *testing.T) {
	j, w, d, root := trained(t, patience.Limit)
	j.expect(w, 2, d)
	j.give(w, 2, d, cluster.Chief)
	eventually(t, "others have written", func() bool { return len(files(t, root, "000000000002-*/ps-0.safetensors")) == 2 })
	j.chief().life.Cancel() // simulates that the chief's process is killed
	for _, task := range []cluster.Task{ps(0), worker(1), worker(2)} {
		blames(t, j.stores[task].Wait(soon(t)), cluster.Chief)
		eventually(t, task.String()+" is not busy", func() bool { return !j.stores[task].Busy() }) // the task may notice the loss only after its Wait has returned
		if err := j.stores[task].Close(); err != nil {
			t.Errorf("%s: %v", task, err)
		}
	}
	j.chief().Close()
	j = again(t, root, "a", "b")
	if m := j.choose(); m == nil || m.Step != 1 {
		t.Errorf("chosen %v", m)
	}
}

// On every host exactly Config.Keep checkpoints stay.
func TestOldCheckpointsAreRemoved(t *testing.T) {
	j, w, d, root := trained(t, patience.Limit)
	for step := uint64(2); step < 7; step++ {
		j.save(w, step, d)
	}
	j.end()
	for _, host := range []string{"a", "b"} {
		var steps []string
		for _, path := range files(t, filepath.Join(root, host), "manifest.json") {
			steps = append(steps, filepath.Base(filepath.Dir(path))[:12])
		}
		if want := []string{"000000000004", "000000000005", "000000000006"}; !slices.Equal(steps, want) {
			t.Errorf("%s has %q, want %q", host, steps, want)
		}
	}
	if got := j.lines("DEBUG", "removed from"); len(got) != 6 {
		t.Errorf("%q", got)
	}
}

// Snapshots may come before or after the chief's announcement of the save.
// Snapshots of other saves are dropped.
func TestSnapshotsComeInAnyOrder(t *testing.T) {
	j, w, d, _ := trained(t, patience.Limit)
	j.give(w, 1, d) // snapshot of a save that is already over
	j.give(w, 2, d) // before the chief's word
	j.expect(w, 2, d)
	if err := j.chief().Wait(soon(t)); err != nil {
		t.Fatal(err)
	}
	j.give(w, 3, d) // snapshot of a save that will never be announced
	j.expect(w, 4, d)
	if !j.chief().Busy() {
		t.Error("the chief is not busy")
	}
	if err := j.chief().Expect(Expected{Manifest: w.Manifest(5)}); err == nil || !strings.Contains(err.Error(), "that of step 4 is still being written") {
		t.Errorf("%v", err)
	}
	j.give(w, 3, d)
	j.give(w, 4, d)
	j.give(w, 4, d) // twice
	if err := j.chief().Wait(soon(t)); err != nil {
		t.Fatal(err)
	}
	if j.chief().Busy() {
		t.Error("the chief is busy")
	}
	j.end()
}

// If a snapshot does not come, the save fails after a timeout. A save in which
// no task writes anything fails at once.
func TestMissingOrEmptySnapshotFailsSave(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	j, w, d, _ := trained(t, impatience)
	j.expect(w, 2, d)
	j.give(w, 2, d, ps(0))
	if err := j.chief().Wait(soon(t)); err == nil || !strings.Contains(err.Error(), "ps:0 on a: the shard holder's values did not come within 1.5s") {
		t.Errorf("%v", err)
	}
	if err := j.chief().Expect(Expected{Manifest: w.Manifest(3)}); err != nil {
		t.Fatal(err)
	}
	if err := j.chief().Wait(soon(t)); err == nil || !strings.Contains(err.Error(), "no task has anything to save") {
		t.Errorf("%v", err)
	}
	gap := *d
	gap.Pieces = d.Pieces[1:]
	j.expect(w, 4, &gap)
	j.give(w, 4, &gap)
	if err := j.chief().Wait(soon(t)); err == nil || !strings.Contains(err.Error(), "manifest") {
		t.Errorf("%v", err)
	}
	j.kill()
}

// After its last step, a worker saves its state without an announcement. That
// must not push out the state of a save whose announcement has not arrived
// yet.
func TestUnannouncedStateDoesNotReplaceEarlierState(t *testing.T) {
	j, w, d, _ := trained(t, patience.Limit)
	j.give(w, 2, d) // before the chief's word
	for i := range 3 {
		j.stores[worker(i)].SaveCarried(4, w.Batch*i/3, w.Batch*(i+1)/3, w.rows(w.Batch*i/3, w.Batch*(i+1)/3))
	}
	j.expect(w, 2, d)
	if err := j.chief().Wait(soon(t)); err != nil {
		t.Fatal(err)
	}
}
