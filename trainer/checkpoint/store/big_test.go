package store

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/statetwin"
	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
)

// Files of many chunks are copied completely in both directions, even if a
// disk is slow: writing may take longer than the timeout of a silent
// connection.
func TestBigFilesAreCopiedOverSlowDisks(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const readAtOnce = 16 << 20 // bytes, of package transfer
	root, random := t.TempDir(), rand.New(rand.NewPCG(1, 2))
	j := opened(t, root, shape{workers: 2, hosts: []string{"a", "b"}, silence: impatience})
	j.fault(worker(1), at("store.flush", func() error { time.Sleep(impatience + 500*time.Millisecond); return nil }))
	w := &twin{Twin: &statetwin.Twin{Optimizer: optimizer.Settings{Rule: optimizer.SGD}, Batch: 2, Updates: []uint64{3},
		Variables: []layout.Variable{{Name: "big", Dtype: layout.Float32, Shape: []int{readAtOnce/4 + 1000}}}}}
	d := &layout.Declaration{Holders: j.tasks[:1], Variables: w.Variables, Optimizer: w.Optimizer, Pieces: []layout.Piece{w.Whole(0)}}
	values := statetwin.Noise(random, readAtOnce+4000)
	j.choose()
	if err := j.chief().Expect(Expected{Manifest: w.Manifest(1), Holders: j.tasks[:1]}); err != nil {
		t.Fatal(err)
	}
	j.chief().Save(transition.Snapshot{Step: 1, Declaration: d, Holder: cluster.Chief, Pieces: []aggregate.SavedPiece{{Count: len(values) / 4, Values: values}}})
	if err := j.chief().Wait(soon(t)); err != nil {
		t.Fatal(err)
	}
	j.end()
	remove(t, filepath.Join(root, "a")) // remove the original, so that the restore must use the copy
	j = opened(t, root, shape{workers: 2, hosts: []string{"a", "b"}, generation: 1})
	m := j.choose()
	all, reader := make([]byte, len(values)), j.chief().decision.reader
	err := reader.Use(t.Context(), func() error {
		file, err := reader.Open(m.Files[0].Name)
		if err != nil {
			return err
		}
		return file.ReadAt("big", all, 0)
	})
	if err != nil || !bytes.Equal(all, values) {
		t.Errorf("read other bytes, or %v", err)
	}
	for _, d := range j.stores {
		d.Restored()
	}
	j.end()
}
