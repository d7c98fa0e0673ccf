package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// Pull gets rows from all holders in the requested order, for several callers
// at the same time. The rows equal those of the reference after every step.
func TestPulledRowsMatchReference(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce, policy.Hybrid} {
		t.Run(a.String(), func(t *testing.T) {
			d := mixed(4, 2)
			d.Variables[5].Shape = []int{2000, 3} // so many rows that a step touches only some of them
			j := newJob(t, d, a, 2)
			members := j.connect(t)
			n := newReference(&j.d)
			for s := range uint64(3) {
				want := wire.Floats[float32](n.table(5))
				var pulling sync.WaitGroup
				for caller := range 8 {
					pulling.Go(func() { checkRows(t, members[caller%2], want, caller) })
				}
				pulling.Wait()
				_, errs := step(members, s, 0.05)
				must(t, errs)
				n.step(0, 4, s, 0.05, everyLeaf)
			}
			leave(t, j, members)
		})
	}
}

func checkRows(t *testing.T, m *member, want []float32, caller int) {
	random := rand.New(rand.NewPCG(uint64(caller), 1))
	for range 2 {
		var index []int64
		for row := range int64(2000) {
			if random.IntN(1+caller*40) == 0 {
				index = append(index, row)
			}
		}
		got := make([]float32, 3*len(index))
		if err := m.Rows.Pull(context.Background(), 5, index, wire.Bytes(got)); err != nil {
			t.Error(err)
			return
		}
		for i, row := range index {
			if [3]float32(got[3*i:]) != [3]float32(want[3*row:]) {
				t.Errorf("row %d is %v, want %v", row, got[3*i:3*i+3], want[3*row:3*row+3])
				return
			}
		}
	}
}

func TestWholeRequestsLargeTableInRanges(t *testing.T) {
	d := mixed(2, 2)
	d.Variables[5].Shape = []int{600_000, 3} // more rows than fit in one frame
	j := newJob(t, d, policy.Hybrid, 2)
	members := j.connect(t)
	n := newReference(&j.d)
	got := make([]byte, 600_000*3*4)
	if err := members[1].Rows.Whole(context.Background(), 5, got); err != nil || string(got) != string(n.table(5)) {
		t.Errorf("the table differs: %v", err)
	}
	dense := make([]byte, len(members[1].values[2]))
	if err := members[1].Rows.Whole(context.Background(), 2, dense); err != nil || string(dense) != string(n.values[2]) {
		t.Errorf("a dense variable differs: %v", err)
	}
	leave(t, j, members)
}

func TestInvalidRequestsAreNotSent(t *testing.T) {
	j := newJob(t, mixed(2, 1), policy.Servers, 1)
	m := j.connect(t)[0]
	ctx := context.Background()
	for want, do := range map[string]func() error{
		"which is not sparse": func() error { return m.Rows.Pull(ctx, 0, nil, nil) },
		"variable 9":          func() error { return m.Rows.Pull(ctx, 9, nil, nil) },
		"row 41 is outside":   func() error { return m.Rows.Pull(ctx, 5, []int64{41}, make([]byte, 12)) },
		"row 3 after row 3":   func() error { return m.Rows.Pull(ctx, 5, []int64{3, 3}, make([]byte, 24)) },
		"11 bytes for 1 rows": func() error { return m.Rows.Pull(ctx, 5, []int64{3}, make([]byte, 11)) },
		"variable 7 of 7":     func() error { return m.Rows.Whole(ctx, 7, nil) },
		`"w": 3 bytes for 60`: func() error { return m.Rows.Whole(ctx, 0, make([]byte, 3)) },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	_, errs := step([]*member{m}, 0, 0.1) // the client can still be used
	must(t, errs)
	leave(t, j, []*member{m})
}

func TestLostHolderEndsPull(t *testing.T) {
	j := newJob(t, mixed(2, 2), policy.Hybrid, 1)
	members := j.connect(t)
	go j.stop[0]()
	var err error
	for err == nil { // until it is noticed
		err = members[0].Rows.Pull(context.Background(), 5, []int64{1, 40}, make([]byte, 24))
	}
	blames(t, err, server0(0), j.cluster.PS[0])
	if again := members[0].Rows.Pull(context.Background(), 5, []int64{1}, make([]byte, 12)); again == nil {
		t.Error(fmt.Sprint("pulled after ", err))
	}
}
