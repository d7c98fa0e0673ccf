package tensors

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/statetwin"
	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/safetensors"
)

// filed writes piece p of state w to a file in memory, and returns a reader of
// it.
func filed(t testing.TB, w *statetwin.Twin, p layout.Piece) extract {
	t.Helper()
	c := newContent()
	c.add(w.Variables[p.Variable], w.Kept(p), "ps-0.safetensors")
	var b bytes.Buffer
	size, err := safetensors.Write(&b, nil, c.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	file, err := safetensors.Open(bytes.NewReader(b.Bytes()), size)
	if err != nil {
		t.Fatal(err)
	}
	return extract{file: file, part: c.Parts[0], unit: w.Unit(p.Variable)}
}

// For random portion sizes and ranges, every unit in the range is read, and no
// other.
func TestReadPartInPortions(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		w := statetwin.New(random, []optimizer.Rule{optimizer.SGD, optimizer.Adam}[random.IntN(2)])
		i := random.IntN(len(w.Variables))
		part := w.Whole(i)
		part.Offset = random.IntN(part.Count)
		part.Count = 1 + random.IntN(part.Count-part.Offset)
		e := filed(t, w, part)
		e.portion = 1 + random.IntN(200)
		want := part
		want.Offset += random.IntN(part.Count)
		want.Count = 1 + random.IntN(part.Offset+part.Count-want.Offset)
		r := w.Take(want)
		if err := e.check(); err != nil {
			t.Fatal(err)
		}
		if err := e.put(t.Context(), i, want.Offset, want.Offset+want.Count, r); err != nil {
			t.Fatal(err)
		}
		if err := r.Compare(); err != nil {
			t.Fatalf("of %+v %+v: %v", part, want, err)
		}
		for _, u := range r.Restored() {
			if u < want.Offset || u >= want.Offset+want.Count {
				t.Fatalf("of %+v %+v: unit %d", part, want, u)
			}
		}
	}
}

// refusing is a transition.Restoring whose Put always fails.
type refusing struct{}

func (refusing) Put(aggregate.SavedPiece) error { return errors.New("not wanted") }

func TestReadPartReturnsErrors(t *testing.T) {
	w := statetwin.New(rand.New(rand.NewPCG(5, 6)), optimizer.SGD)
	e := filed(t, w, w.Whole(0))
	e.portion = 4
	if err := e.put(t.Context(), 0, 0, 10, refusing{}); err == nil {
		t.Error("what was refused was put")
	}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := e.put(ctx, 0, 0, 10, w.Take(layout.Piece{})); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	e.part.Slots = 1
	if err := e.check(); err == nil || !strings.Contains(err.Error(), `"w/slot.0", the manifest says`) {
		t.Errorf("%v", err)
	}
}

// A file whose row numbers are not ascending causes an error, not an endless
// loop.
func TestUnsortedRowsAreRefused(t *testing.T) {
	w := statetwin.New(rand.New(rand.NewPCG(5, 6)), optimizer.SGD)
	unit := statetwin.Noise(rand.New(rand.NewPCG(5, 6)), w.Unit(6))
	w.Units[6] = map[int][]byte{}
	for i := range 7 {
		w.Units[6][i] = unit
	}
	k := w.Kept(w.Whole(6))
	k.Rows = []int64{1, 700, 3, 900, 901, 902, 903}
	c := newContent()
	c.add(w.Variables[6], k, "x")
	var b bytes.Buffer
	size, err := safetensors.Write(&b, nil, c.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	file, err := safetensors.Open(bytes.NewReader(b.Bytes()), size)
	if err != nil {
		t.Fatal(err)
	}
	e := extract{file: file, part: c.Parts[0], unit: len(unit), portion: 2 * len(unit)}
	if err := e.put(t.Context(), 6, 600, 1000, refusing{}); err == nil || !strings.Contains(err.Error(), "not in order") {
		t.Errorf("%v", err)
	}
}

// Tensors of variables with unusual names do not collide with the rows or
// slots of others.
func TestTensorNamesDoNotCollide(t *testing.T) {
	w := statetwin.New(rand.New(rand.NewPCG(1, 1)), optimizer.Adam)
	d := w.Declare(rand.New(rand.NewPCG(1, 1)), []cluster.Task{{Role: cluster.PS}}, "")
	for i, name := range []string{"x", "x/slot.0", "__metadata__", "x/slot.0/slot.1", "x/rows", "x", "x/rows~"} {
		d.Variables[i].Name = name
	}
	c := newContent()
	for i := range d.Variables {
		c.add(d.Variables[i], w.Kept(w.Whole(i)), "ps-0.safetensors")
	}
	seen := map[string]bool{"__metadata__": true}
	for _, tensor := range c.Tensors {
		if seen[tensor.Name] {
			t.Errorf("%q twice", tensor.Name)
		}
		seen[tensor.Name] = true
	}
	if c.Parts[0].Tensor != "x" {
		t.Errorf("the first is called %q", c.Parts[0].Tensor)
	}
}
