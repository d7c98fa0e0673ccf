package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/cluster"
)

// waiting calls Wait of a store in the background and returns its result
// through a channel.
func waiting(t *testing.T, d *Store) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- d.Wait(soon(t)) }()
	<-d.leaving
	return ended
}

func still(t *testing.T, ended <-chan error, what string) {
	t.Helper()
	select {
	case err := <-ended:
		t.Errorf("it went (%v) while %s", err, what)
	case <-time.After(50 * time.Millisecond):
	}
}

// A server without pieces of variables, but with files that others must read,
// stays until all workers have restored. Later saves do without it.
func TestHolderWaitsUntilOthersHaveRestored(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	root, _, w := saved(t, random, "a", "b")
	remove(t, filepath.Join(root, "b"))
	j := opened(t, root, shape{servers: 1, workers: 3, hosts: []string{"a", "b", "b", "b"}, generation: 1})
	ended := waiting(t, j.stores[ps(0)])
	still(t, ended, "nothing is chosen")
	m := j.choose()
	still(t, ended, "nobody has restored")
	workers := j.tasks[1:]
	d := w.Declare(random, workers, m.ID)
	j.stores[worker(1)].Restored()
	j.stores[worker(2)].Restored()
	still(t, ended, "the chief has not restored")
	j.restores(w, d)
	if err := within(t, ended); err != nil {
		t.Fatal(err)
	}
	j.stores[ps(0)].Close()
	delete(j.stores, ps(0))
	j.tasks = workers
	j.save(w, 30, d)
	j.says("checkpoint of step 30", "on 1 host,")
	j.end()
	if got := files(t, filepath.Join(root, "a"), "000000000030*"); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

// A task that calls Wait during a save stays until the save is over. If it
// leaves without writing its part, the save fails.
func TestTaskCannotLeaveDuringSave(t *testing.T) {
	j, w, d, _ := trained(t, patience.Limit)
	j.expect(w, 2, d)
	j.give(w, 2, d, worker(0), worker(2))
	ended := waiting(t, j.stores[worker(1)])
	still(t, ended, "a save is under way")
	if err := j.stores[worker(2)].Wait(soon(t)); err != nil {
		t.Error(err)
	}
	if err := within(t, ended); err != nil {
		t.Error(err)
	}
	if err := j.chief().Wait(soon(t)); err == nil || !strings.Contains(err.Error(), "worker:2 on b: the task is ending") {
		t.Errorf("%v", err)
	}
	j.kill()
}

func TestWaitsEndWithContext(t *testing.T) {
	j, w, d, _ := trained(t, patience.Limit)
	j.expect(w, 2, d)
	j.give(w, 2, d, ps(0))
	why := errors.New("enough")
	for _, task := range []cluster.Task{cluster.Chief, worker(1)} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, why)
		defer cancel()
		if err := j.stores[task].Wait(ctx); !errors.Is(err, why) {
			t.Errorf("%s: %v", task, err)
		}
	}
	began := time.Now()
	for _, d := range j.stores {
		for range 2 {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if took := time.Since(began); took > patience.Limit/2 {
		t.Errorf("closing took %v", took)
	}
	if err := j.chief().Expect(Expected{Manifest: w.Manifest(3), Holders: j.tasks}); err == nil {
		t.Error("saved after the end")
	}
	j.give(w, 3, d)
}

// If the chief ends during a save, the other tasks delete their files of it
// and end too.
func TestClosingChiefRemovesUnfinishedSave(t *testing.T) {
	j, w, d, root := trained(t, patience.Limit)
	j.expect(w, 2, d)
	j.give(w, 2, d, worker(1))
	eventually(t, "others have written", func() bool { return len(files(t, root, "000000000002-*/ps-0.safetensors")) == 2 })
	j.chief().Close()
	for _, task := range []cluster.Task{ps(0), worker(1), worker(2)} {
		if err := j.stores[task].Wait(soon(t)); err != nil {
			t.Errorf("%s: %v", task, err)
		}
		if err := j.stores[task].Close(); err != nil {
			t.Errorf("%s: %v", task, err)
		}
	}
	if left := files(t, root, "000000000002-*/*"); len(left) != 0 {
		t.Errorf("left %q", names(left))
	}
	if kept := files(t, root, "000000000001-*/manifest.json"); len(kept) != 2 {
		t.Errorf("of the one before there are %q", kept)
	}
	j.kill()
}

// When the chief closes its store, all other tasks' Wait returns.
func TestClosingChiefReleasesTasks(t *testing.T) {
	j := opened(t, t.TempDir(), shape{servers: 1, workers: 2, hosts: []string{"a", "b"}})
	ended := waiting(t, j.stores[ps(0)])
	j.chief().Close()
	if err := within(t, ended); err != nil {
		t.Error(err)
	}
	if err := j.stores[worker(1)].Wait(soon(t)); err != nil {
		t.Error(err)
	}
}

// A task whose host has failed never disconnects. The chief waits for it only
// once, even if dismiss was called before Close.
func TestCloseWaitsOnceForLostTasks(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	j := newJob(t, t.TempDir(), shape{workers: 2, hosts: []string{"a"}})
	opening := make(chan map[cluster.Task]error, 1)
	go func() { opening <- j.open(worker(1)) }()
	conn := j.control(worker(1)) // this connection stays open until the test ends
	if err := send(conn, message{Kind: hello, Token: "t"}); err != nil {
		t.Fatal(err)
	}
	asked, err := receive(conn)
	if err != nil || asked.Kind != probes {
		t.Fatalf("asked %v, %v", asked.Kind, err)
	}
	if err := send(conn, message{Kind: answer, Number: asked.Number}); err != nil {
		t.Fatal(err)
	}
	if err := within(t, opening)[cluster.Chief]; err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	j.chief().dismiss()
	if took := time.Since(began); took < closeTimeout {
		t.Errorf("worker:1 was awaited for %v", took)
	}
	began = time.Now()
	if err := j.chief().Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > closeTimeout/2 {
		t.Errorf("closing took another %v", took)
	}
}

// If the chief ends after all reports but before any manifest is written, the
// save fails and all its files are deleted.
func TestSaveGivenUpBeforeManifestIsRemoved(t *testing.T) {
	j, w, d, root := trained(t, patience.Limit)
	j.fault(cluster.Chief, at("store.manifest", func() error { j.chief().dismiss(); return nil }))
	j.expect(w, 2, d)
	j.give(w, 2, d)
	if err := j.chief().Wait(soon(t)); !errors.Is(err, errClosed) {
		t.Errorf("wait: %v", err)
	}
	if s := j.chief().Summary(); s.Saved != 1 || s.Failed != 1 {
		t.Errorf("summary %+v", s)
	}
	eventually(t, "what there was of it is gone", func() bool {
		return len(files(t, root, "000000000002-*")) == 0
	})
}
