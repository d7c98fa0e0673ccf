package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/optimizer"
)

// saved runs a job on these hosts that saves two states, at steps 10 and 20.
func saved(t *testing.T, random *rand.Rand, hosts ...string) (root string, old, new *twin) {
	t.Helper()
	root = t.TempDir()
	old, new = newTwin(random, optimizer.Momentum), newTwin(random, optimizer.Momentum)
	new.Variables = old.Variables // their sizes are drawn
	new.Units[1], new.Updates = old.Units[1], slices.Clone(new.Updates)
	new.Updates[1] = old.Updates[1]
	j := opened(t, root, shape{servers: 1, workers: len(hosts), hosts: hosts})
	j.choose()
	j.save(old, 10, old.Declare(random, j.tasks, ""))
	j.save(new, 20, new.Declare(random, j.tasks, ""))
	j.end()
	return root, old, new
}

// again opens the next generation.
func again(t *testing.T, root string, hosts ...string) *testJob {
	t.Helper()
	return opened(t, root, shape{servers: 1, workers: len(hosts), hosts: hosts, generation: 1})
}

// If one of two hosts loses its folder, everything is restored from the other.
func TestRestoreAfterLossOfOneHost(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, lost := range []string{"a", "b", "c"} {
		root, _, w := saved(t, random, "a", "b", "c")
		remove(t, filepath.Join(root, lost))
		j := again(t, root, "a", "b", "c")
		m := j.choose()
		if m == nil || m.Step != 20 {
			t.Fatalf("without %s: chosen %v", lost, m)
		}
		j.restores(w, w.Declare(random, j.tasks, m.ID))
		j.end()
	}
}

// step20 returns the path of a file of the second checkpoint on a host.
func step20(t *testing.T, root, host, file string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(root, host, "000000000020-*", file))
	if err != nil || len(all) != 1 {
		t.Fatalf("%s on %s: %q, %v", file, host, all, err)
	}
	return all[0]
}

func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

func flip(b []byte) []byte  { b[len(b)*2/3] ^= 4; return b }
func halve(b []byte) []byte { return b[:len(b)/2] }
func other([]byte) []byte   { return []byte("something else altogether") }

// A checkpoint that is damaged on all hosts is skipped with a warning, and the
// one before is chosen. If it is damaged on one host only, tasks read the
// other host's copy.
func TestDamagedCheckpointsAreLoggedAndSkipped(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	random := rand.New(rand.NewPCG(2, 2))
	hosts := []string{"a", "b"}
	for name, test := range map[string]struct {
		file   string
		on     []string
		change func([]byte) []byte // nil: it is removed
		step   uint64
		says   []string // each entry must occur in exactly one warning
	}{
		"flipped":           {"worker-0.safetensors", hosts, flip, 10, []string{"worker-0.safetensors has no intact copy on any host", "on a: checkpoint", "on b: checkpoint", "damaged"}},
		"flipped once":      {"worker-0.safetensors", hosts[1:], flip, 20, []string{"ignored an unusable copy", "on b: checkpoint", "worker-0.safetensors", "damaged"}},
		"cut":               {"ps-0.safetensors", hosts, halve, 10, []string{"ps-0.safetensors has the right size on no host", "ps:0 on host a", "on host b"}},
		"cut once":          {"ps-0.safetensors", hosts[:1], halve, 20, nil},
		"replaced":          {"worker-1.state.safetensors", hosts, other, 10, []string{"worker-1.state.safetensors has the right size on no host"}},
		"gone":              {"worker-1.safetensors", hosts, nil, 10, []string{"worker-1.safetensors is on no host", "worker:1 wrote it"}},
		"gone once":         {"worker-1.safetensors", hosts[:1], nil, 20, nil},
		"manifest flipped":  {"manifest.json", hosts, flip, 10, []string{"ps:0 on host a: manifest: its sum is wrong"}},
		"manifest flip one": {"manifest.json", hosts[:1], flip, 20, nil},
		"not finished":      {"manifest.json", hosts, nil, 10, []string{"its manifest is on no host: it was not finished"}},
		"other manifests":   {"manifest.json", hosts[1:], foreign, 10, []string{"has a different manifest of it than"}},
	} {
		t.Run(name, func(t *testing.T) {
			root, old, new := saved(t, random, hosts...)
			for _, host := range test.on {
				if path := step20(t, root, host, test.file); test.change == nil {
					remove(t, path)
				} else {
					edit(t, path, test.change)
				}
			}
			j := again(t, root, hosts...)
			m := j.choose()
			if m == nil || m.Step != test.step {
				t.Fatalf("chosen %v", m)
			}
			if test.says != nil {
				j.says(append([]string{"WARN worker:0"}, test.says...)...)
			} else if got := j.lines("WARN"); len(got) > 0 {
				t.Errorf("warns %q", got)
			}
			w := map[uint64]*twin{10: old, 20: new}[test.step]
			j.restores(w, w.Declare(random, j.tasks, m.ID))
			j.end()
		})
	}
}

// foreign returns the valid manifest of another job that has the same name.
func foreign(b []byte) []byte {
	m, err := checkpoint.DecodeManifest(b)
	if err != nil {
		panic(err)
	}
	m.Seed++
	b, err = m.Encode()
	if err != nil {
		panic(err)
	}
	return b
}

// If all checkpoints are damaged, Choose fails instead of beginning from
// scratch.
func TestChooseFailsIfAllCheckpointsAreDamaged(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	root, _, _ := saved(t, random, "a", "b")
	for _, host := range []string{"a", "b"} {
		edit(t, step20(t, root, host, "ps-0.safetensors"), flip)
	}
	j := again(t, root, "a", "b")
	fits := func(m *checkpoint.Manifest) error {
		if m.Step == 10 {
			return errors.New("of another program")
		}
		return nil
	}
	m, err := j.chief().Choose(soon(t), fits)
	if m != nil || err == nil || !strings.Contains(err.Error(), "ps-0.safetensors has no intact copy on any host") || !strings.Contains(err.Error(), "of another program") {
		t.Errorf("%v, %v", m, err)
	}
	_, err = j.stores[ps(0)].Chosen(soon(t))
	blames(t, err, cluster.Chief, "no checkpoint is good to resume from", "of another program")
	if err := j.stores[ps(0)].Restore(soon(t), newTwin(random, optimizer.SGD).Declare(random, j.tasks, "x"), pieceOf(0), nil); err == nil {
		t.Error("restored from nothing")
	}
	if _, _, err := j.stores[ps(0)].Carried(soon(t), "h", 0, 1); err == nil {
		t.Error("carried from nothing")
	}
}

// If no checkpoint was ever finished, training begins from scratch.
func TestUnfinishedCheckpointsAreIgnored(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	root, _, _ := saved(t, random, "a", "b")
	for _, path := range append(files(t, filepath.Join(root, "a"), "manifest.json"), files(t, filepath.Join(root, "b"), "manifest.json")...) {
		remove(t, path)
	}
	j := again(t, root, "a", "b")
	if m := j.choose(); m != nil {
		t.Errorf("chosen %v", m)
	}
	if got := j.lines("WARN", "it was not finished"); len(got) != 2 {
		t.Errorf("says %q", got)
	}
	j.says("INFO", "begins anew")
	j.end()
}

// If the chief's context ends during Choose, the other tasks' Chosen fails
// too.
func TestCancelEndsChoose(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	root, _, _ := saved(t, random, "a", "b")
	j := again(t, root, "a", "b")
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := j.chief().Choose(ctx, anything); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	_, err := j.stores[worker(1)].Chosen(soon(t))
	blames(t, err, cluster.Chief, "enough")
}

// If reading from one holder of a file fails, a restore reads from another
// holder.
func TestRestoreReadsFromAnotherHolder(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 6))
	root, _, w := saved(t, random, "a", "b") // each has all
	j := again(t, root, "a", "b", "c")
	m := j.choose()
	reader := j.stores[worker(1)] // ps:0 and worker:2 are on host a, worker:0 is on host b
	if h := j.hosts[worker(1)]; h != "c" {
		t.Fatalf("worker:1 is on %s", h)
	}
	d := w.Declare(random, []cluster.Task{worker(1)}, m.ID)
	for _, host := range []string{"a", "b"} {
		var asked atomic.Bool
		for task := range j.stores {
			j.fault(task, nil)
			if j.hosts[task] == host {
				j.fault(task, at("store.read", func() error { asked.Store(true); return errors.New("a fault") }))
			}
		}
		for _, p := range d.Pieces {
			if err := w.restore(soon(t), reader, d, p); err != nil {
				t.Errorf("without %s: %v", host, err)
			}
		}
		if host == "a" && !asked.Load() { // worker:1 tries worker:2 first, which is on host a
			t.Errorf("nobody on %s was asked", host)
		}
	}
	for task, store := range j.stores {
		if task != worker(1) {
			store.Close()
		}
	}
	err := w.restore(soon(t), reader, d, d.Pieces[0])
	if err == nil || !strings.Contains(err.Error(), "worker:0 on b") {
		t.Errorf("with nobody: %v", err)
	}
}

// Restore returns soon after its context ends, even if the tasks that it reads
// from hang.
func TestCancelEndsRestore(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 8))
	root, _, w := saved(t, random, "a", "b")
	j := again(t, root, "a", "b", "c")
	m := j.choose()
	release, asked := make(chan struct{}), make(chan struct{}, 10)
	defer close(release)
	for task := range j.stores {
		j.fault(task, at("store.read", func() error { asked <- struct{}{}; <-release; return nil }))
	}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	d := w.Declare(random, []cluster.Task{worker(1)}, m.ID)
	go func() { ended <- w.restore(ctx, j.stores[worker(1)], d, d.Pieces[0]) }()
	within(t, asked)
	began := time.Now()
	cancel(why)
	if err := within(t, ended); !errors.Is(err, why) || time.Since(began) > patience.Limit/3 {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}
