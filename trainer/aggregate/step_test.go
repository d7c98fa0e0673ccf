package aggregate

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// twoWorkers is a parameter server that holds the variable w, with two
// elements, and the loss. Two workers with one virtual worker each send
// gradients.
type twoWorkers struct {
	*Shards
	discardHost
	t    *testing.T
	sent []string // the events sent so far, each with the rank of its worker
}

func (w *twoWorkers) Tell(rank int, e Event) { w.sent = append(w.sent, sent(rank, e)) }
func sent(rank int, e Event) string          { return fmt.Sprintf("%d %T%+v", rank, e, e) }
func (w *twoWorkers) Fail(err error)         { w.t.Error(err) }

// newTwoWorkers returns the shards for a declaration, which the function
// change may modify before; change may be nil.
func newTwoWorkers(t *testing.T, change func(*layout.Declaration)) *twoWorkers {
	t.Helper()
	d := &layout.Declaration{VirtualWorkers: 2, Workers: []layout.Range{{Lo: 0, Hi: 1}, {Lo: 1, Hi: 2}},
		Holders: []cluster.Task{{Role: cluster.PS}}, Optimizer: optimizer.Settings{Rule: optimizer.SGD},
		Variables: []layout.Variable{{Name: "w", Dtype: layout.Float32, Shape: []int{2}}},
		Pieces:    []layout.Piece{{Variable: 0, Count: 2}}}
	if change != nil {
		change(d)
	}
	w := &twoWorkers{t: t}
	var err error
	if w.Shards, err = New(d, d.Holders[0], w); err != nil {
		t.Fatal(err)
	}
	return w
}

// contribution is what a worker with data sends in one step.
type contribution struct {
	gradient []float32
	loss     float64
}

// step executes a step of all workers with learning rate 1. brought contains
// their contributions by rank; nil means that the worker has no data.
func (w *twoWorkers) step(number uint64, brought ...*contribution) {
	w.t.Helper()
	for rank, c := range brought {
		w.take(rank, number, c)
	}
}

// take executes one worker's part of a step.
func (w *twoWorkers) take(rank int, number uint64, c *contribution) {
	w.t.Helper()
	present := 0
	if c != nil {
		present = 1
	}
	if err := w.Begin(rank, number, Beginning{Rate: 1, Present: []int{present}}); err != nil {
		w.t.Fatal(err)
	}
	if c == nil {
		return
	}
	group, input := w.Contributor(rank).Group, w.Contributor(rank).First
	for i, payload := range [][]byte{wire.Bytes(c.gradient), wire.Bytes([]float64{c.loss})} {
		read := func(into []byte) error { copy(into, payload); return nil }
		if _, err := w.All()[i].Receive(group, input, uint64(len(payload)), read); err != nil {
			w.t.Fatal(err)
		}
		w.Arrive(group, i, input, true)
	}
}

func (w *twoWorkers) values() []float32 { return wire.Floats[float32](w.All()[0].Value(-1)) }
func (w *twoWorkers) loss() float64     { return wire.Floats[float64](w.All()[1].Value(-1))[0] }

// A step uses the mean of the gradients of virtual workers that have data. If
// none has data, the values do not change and the loss is 0, not the loss of
// an earlier step.
func TestStepAveragesOnlyWorkersWithData(t *testing.T) {
	w := newTwoWorkers(t, nil)
	for number, c := range []struct {
		brought []*contribution // contributions by rank; nil means that the worker has no data
		values  []float32
		loss    float64
	}{
		{[]*contribution{{[]float32{2, 4}, 1}, {[]float32{6, 0}, 3}}, []float32{-4, -2}, 2},
		{[]*contribution{nil, {[]float32{1, -1}, 5}}, []float32{-5, -1}, 5},
		{[]*contribution{nil, nil}, []float32{-5, -1}, 0},
	} {
		w.step(uint64(number), c.brought...)
		if !slices.Equal(w.values(), c.values) || w.loss() != c.loss || !slices.Equal(w.Steps(), []uint64{uint64(number) + 1}) {
			t.Errorf("step %d: values %v, loss %v, steps %v; want %v, %v", number, w.values(), w.loss(), w.Steps(), c.values, c.loss)
		}
	}
}

// If gradients are clipped, values and step count change only after the
// group's first worker has sent the clipping factor.
func TestClippedStepWaitsForTheFactor(t *testing.T) {
	w := newTwoWorkers(t, func(d *layout.Declaration) { d.Clip = 2.5 })
	d := w.Declaration()
	w.step(0, &contribution{[]float32{6, 8}, 0}, &contribution{[]float32{0, 0}, 0}) // the mean gradient is [3, 4]
	if want := []string{sent(0, SquaresWanted{})}; !slices.Equal(w.sent, want) {
		t.Errorf("told %q before the norm is known, want %q", w.sent, want)
	}
	if !slices.Equal(w.values(), []float32{0, 0}) || !slices.Equal(w.Steps(), []uint64{0}) {
		t.Errorf("values %v after %v steps before the norm is known", w.values(), w.Steps())
	}
	report := Report(w.All(), 0, nil)
	if most := MaxReport(d, 0); uint64(len(report)) != most {
		t.Errorf("a report of %d bytes, and one of dense variables alone has %d", len(report), most)
	}
	norm, complete, err := NewNorm(d).Take(0, report)
	if norm != 5 || !complete || err != nil {
		t.Fatalf("norm %v, complete %v, %v; want 5", norm, complete, err)
	}
	if err := w.Scale(1, norm, 0.5); err == nil {
		t.Error("took the norm from a worker that does not lead")
	}
	w.sent = nil
	if err := w.Scale(0, norm, d.ClipFactor(norm)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(w.values(), []float32{-1.5, -2}) || !slices.Equal(w.Steps(), []uint64{1}) {
		t.Errorf("values %v after %v steps, want [-1.5 -2] after 1", w.values(), w.Steps())
	}
	end := Outcome{VirtualWorkers: 2, Norm: 5, Updates: 1}
	var want []string
	for _, e := range []Event{Updated{0, end}, Updated{1, end}, Closed{end}} {
		for rank := range 2 {
			want = append(want, sent(rank, e))
		}
	}
	if !slices.Equal(w.sent, want) {
		t.Errorf("told %q, want %q", w.sent, want)
	}
	if err := w.Scale(0, norm, 0.5); err == nil {
		t.Error("took the norm of a step twice")
	}
}

// A consistent cut waits for steps before the cut whose gradients are still on
// the way. It delays later steps until the values are copied or, if the chief
// requests a pause, until GoOn.
func TestConsistentCutDelaysLaterSteps(t *testing.T) {
	for _, holds := range []bool{false, true} {
		t.Run(fmt.Sprintf("holds %v", holds), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTwoWorkers(t, func(d *layout.Declaration) { d.Sync = async(t) })
				cut := w.Alignment()
				if steps, err := cut.Freeze(); err != nil || !slices.Equal(steps, []uint64{0, 0}) {
					t.Fatalf("steps %v, %v", steps, err)
				}
				if _, err := cut.Freeze(); err == nil {
					t.Error("a second cut was begun before the end of the first")
				}
				if err := cut.Agree([]uint64{2, 0}, holds); err == nil {
					t.Error("agreed to a step that nobody can have begun")
				}
				if err := cut.Agree([]uint64{1, 0}, holds); err != nil { // another shard holder has already applied step 0 of worker 0 to a shard
					t.Fatal(err)
				}
				if err := cut.Agree([]uint64{1, 0}, holds); err == nil {
					t.Error("agreed twice")
				}
				var copied []float32
				ended, stop := false, make(chan struct{})
				defer close(stop)
				go func() {
					cut.CopyCut(stop, func(time.Time) { copied = slices.Clone(w.values()) })
					ended = true
				}()
				w.take(1, 0, &contribution{[]float32{8, 8}, 0})
				synctest.Wait()
				if _, held := w.Waiting(); held != len(w.All()) || copied != nil || !slices.Equal(w.values(), []float32{0, 0}) {
					t.Errorf("before the cut: values %v, copied %v, %d updates held", w.values(), copied, held)
				}
				w.take(0, 0, &contribution{[]float32{1, 2}, 0})
				synctest.Wait()
				if !ended || !slices.Equal(copied, []float32{-1, -2}) {
					t.Fatalf("copied %v, and the copy has ended: %v; want [-1 -2]", copied, ended)
				}
				if holds {
					if !slices.Equal(w.values(), []float32{-1, -2}) {
						t.Errorf("values %v before the chief goes on", w.values())
					}
					cut.GoOn()
				}
				if _, held := w.Waiting(); held != 0 || !slices.Equal(w.values(), []float32{-9, -10}) {
					t.Errorf("after the cut: values %v, %d updates held; want [-9 -10]", w.values(), held)
				}
				if steps, err := cut.Freeze(); err != nil || !slices.Equal(steps, []uint64{1, 1}) {
					t.Errorf("the next cut: %v, %v", steps, err)
				}
			})
		})
	}
}

func async(t *testing.T) policy.Sync {
	t.Helper()
	s, err := policy.ParseSync("async")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
