package store

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/statetwin"
	"github.com/plx-run/plx/trainer/optimizer"
)

// A task that has failed to make a second copy is not the buddy in the next
// save, if another task can be. And a save succeeds if a task without a part
// in it is lost before it has written the manifest.
func TestNextSaveAvoidsFailedBuddy(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	root := t.TempDir()
	j := opened(t, root, shape{workers: 3, hosts: []string{"a", "b", "c"}})
	w := newTwin(random, optimizer.Adam)
	d := w.Declare(random, j.tasks[:1], "")
	j.choose()
	save := func(step uint64) error {
		if err := j.chief().Expect(Expected{Manifest: w.Manifest(step), Holders: statetwin.Holding(d)}); err != nil {
			t.Fatal(err)
		}
		j.give(w, step, d)
		return j.chief().Wait(soon(t))
	}
	j.fault(worker(1), at("store.copy", func() error { return errors.New("a fault") }))
	if err := save(1); err == nil || !strings.Contains(err.Error(), " at worker:1 on b: ") || !strings.Contains(err.Error(), "a fault") {
		t.Fatalf("%v", err)
	}
	lost := j.stores[worker(1)]
	j.fault(worker(1), func(place string) error {
		if place == "store.ack" {
			lost.life.Cancel()
		}
		return nil
	})
	if err := save(2); err != nil {
		t.Errorf("although worker:2 on c could keep its copy: %v", err)
	}
	if got := files(t, root, "000000000002-*/worker-0.safetensors"); len(got) != 2 || !strings.HasPrefix(got[1], filepath.Join(root, "c")) {
		t.Errorf("copies: %q", got)
	}
	if err := save(3); err != nil {
		t.Errorf("without worker:1: %v", err)
	}
}
