package depot

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/owner"
	"github.com/plx-run/plx/trainer/safetensors"
)

// filed is a piece of a twin in a file.
func filed(t testing.TB, w *twin, p owner.Piece) extract {
	t.Helper()
	c := content{names: map[string]bool{}}
	c.add(w.variables[p.Variable], w.kept(p), "ps-0.safetensors")
	var b bytes.Buffer
	size, err := safetensors.Write(&b, nil, c.tensors)
	if err != nil {
		t.Fatal(err)
	}
	file, err := safetensors.Open(bytes.NewReader(b.Bytes()), size)
	if err != nil {
		t.Fatal(err)
	}
	return extract{file: file, part: c.parts[0], unit: w.unit(p.Variable)}
}

// However little is read at once, and whatever is wanted of a part, it is all
// there once.
func TestPortions(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		w := newTwin(random, []optimizer.Rule{optimizer.SGD, optimizer.Adam}[random.IntN(2)])
		i := random.IntN(len(w.variables))
		part := w.whole(i)
		part.Offset = random.IntN(part.Count)
		part.Count = 1 + random.IntN(part.Count-part.Offset)
		e := filed(t, w, part)
		e.portion = 1 + random.IntN(200)
		want := part
		want.Offset += random.IntN(part.Count)
		want.Count = 1 + random.IntN(part.Offset+part.Count-want.Offset)
		r := &taken{w: w, piece: want, units: map[int][]byte{}, covered: map[int]bool{}}
		if err := e.check(); err != nil {
			t.Fatal(err)
		}
		if err := e.put(t.Context(), i, want.Offset, want.Offset+want.Count, r); err != nil {
			t.Fatal(err)
		}
		if err := r.compare(); err != nil {
			t.Fatalf("of %+v %+v: %v", part, want, err)
		}
		for u := range r.units {
			if u < want.Offset || u >= want.Offset+want.Count {
				t.Fatalf("of %+v %+v: unit %d", part, want, u)
			}
		}
	}
}

// refusing takes nothing.
type refusing struct{}

func (refusing) Put(owner.Kept) error { return errors.New("not wanted") }

func TestExtractEnds(t *testing.T) {
	w := newTwin(rand.New(rand.NewPCG(5, 6)), optimizer.SGD)
	e := filed(t, w, w.whole(0))
	e.portion = 4
	if err := e.put(t.Context(), 0, 0, 10, refusing{}); err == nil {
		t.Error("what was refused was put")
	}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := e.put(ctx, 0, 0, 10, &taken{w: w, units: map[int][]byte{}, covered: map[int]bool{}}); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	e.part.Slots = 1
	if err := e.check(); err == nil || !strings.Contains(err.Error(), `"w/slot.0", the manifest says`) {
		t.Errorf("%v", err)
	}
}

// Rows that are in no order, of a file that nobody has damaged, do not keep it
// going for ever.
func TestRowsInNoOrder(t *testing.T) {
	w := newTwin(rand.New(rand.NewPCG(5, 6)), optimizer.SGD)
	unit := noise(rand.New(rand.NewPCG(5, 6)), w.unit(6))
	w.units[6] = map[int][]byte{}
	for i := range 7 {
		w.units[6][i] = unit
	}
	k := w.kept(w.whole(6))
	k.Rows = []int64{1, 700, 3, 900, 901, 902, 903}
	c := content{names: map[string]bool{}}
	c.add(w.variables[6], k, "x")
	var b bytes.Buffer
	size, err := safetensors.Write(&b, nil, c.tensors)
	if err != nil {
		t.Fatal(err)
	}
	file, err := safetensors.Open(bytes.NewReader(b.Bytes()), size)
	if err != nil {
		t.Fatal(err)
	}
	e := extract{file: file, part: c.parts[0], unit: len(unit), portion: 2 * len(unit)}
	if err := e.put(t.Context(), 6, 600, 1000, refusing{}); err == nil || !strings.Contains(err.Error(), "not in order") {
		t.Errorf("%v", err)
	}
}

// Files of many chunks travel whole, both ways, also where a disk is slow: it
// may be so for longer than a task may be silent.
func TestBigFiles(t *testing.T) {
	root, random := t.TempDir(), rand.New(rand.NewPCG(1, 2))
	j := opened(t, root, layout{workers: 2, hosts: []string{"a", "b"}, silence: impatience})
	j.fault(worker(1), at("depot.flush", func() error { time.Sleep(impatience + 500*time.Millisecond); return nil }))
	w := &twin{optimizer: optimizer.Settings{Rule: optimizer.SGD}, batch: 2, carried: map[string]Carried{}, updates: []uint64{3},
		variables: []owner.Variable{{Name: "big", Dtype: owner.Float32, Shape: []int{maxRead/4 + 1000}}}}
	d := &owner.Declaration{Owners: j.tasks[:1], Variables: w.variables, Optimizer: w.optimizer, Pieces: []owner.Piece{w.whole(0)}}
	values := noise(random, maxRead+4000)
	j.choose()
	if err := j.chief().Expect(Expected{Manifest: w.manifest(1), Owners: j.tasks[:1]}); err != nil {
		t.Fatal(err)
	}
	j.chief().Save(owner.Snapshot{Step: 1, Declaration: d, Owner: cluster.Chief, Pieces: []owner.Kept{{Count: len(values) / 4, Values: values}}})
	if err := j.chief().Wait(soon(t)); err != nil {
		t.Fatal(err)
	}
	j.end()
	remove(t, filepath.Join(root, "a")) // the copy is what is left
	j = opened(t, root, layout{workers: 2, hosts: []string{"a", "b"}, generation: 1})
	m := j.choose()
	all := make([]byte, m.Files[0].Size)
	err := j.chief().library.visit(t.Context(), func() error {
		l := &j.chief().library
		_, err := l.source(&book{}, j.chief().choice, m.Files[0].Name).ReadAt(all, 0)
		return err
	})
	want, other := os.ReadFile(filepath.Join(root, "b", m.ID, m.Files[0].Name))
	if err != nil || other != nil || !bytes.Equal(all, want) || !bytes.HasSuffix(all, values) {
		t.Errorf("%v, %v, %d bytes", err, other, len(want))
	}
	for _, d := range j.depots {
		d.Restored()
	}
	j.end()
}

func TestWords(t *testing.T) {
	c := &chief{config: Config{Host: func(t cluster.Task) string { return string(t.Role) }}}
	buddy := worker(0)
	s := &save{held: 300 * time.Microsecond, began: time.Now().Add(-20 * time.Millisecond),
		buddies: map[cluster.Task]*cluster.Task{ps(0): &buddy, ps(1): &buddy}}
	got := c.line(s, &checkpoint.Manifest{Step: 40, Files: []checkpoint.File{{Size: 1 << 20}, {Size: 200 << 10}, {}}})
	if !strings.HasPrefix(got, "checkpoint of step 40: 1.2 MiB in 3 files on 2 hosts, steps held for 0.3 ms, written in 2") {
		t.Error(got)
	}
	for n, want := range map[int64]string{0: "0 bytes", 1023: "1023 bytes", 1024: "1.0 KiB", 1023 << 10: "1.0 MiB", 5 << 40: "5.0 TiB", 5 << 50: "5120.0 TiB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0.0 ms", 9949 * time.Microsecond: "9.9 ms", 20 * time.Millisecond: "20 ms", 1230 * time.Millisecond: "1.2 s"} {
		if got := short(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
