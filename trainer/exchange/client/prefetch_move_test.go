package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
)

// Workers run without synchronisation between steps and prefetch only some of
// their rows, while tables move before some steps. All rows must equal those
// of the reference.
func TestPrefetchedRowsMatchReferenceAcrossMoves(t *testing.T) {
	for _, c := range []struct {
		workers int
		a       policy.Architecture
		servers int
		hosts   []layout.Range
	}{
		{1, policy.Servers, 2, nil}, {3, policy.Servers, 3, nil}, {4, policy.Hybrid, 2, nil}, {3, policy.AllReduce, 0, nil},
		{4, policy.Servers, 3, []layout.Range{{Lo: 0, Hi: 3}, {Lo: 3, Hi: 4}}}, {5, policy.Hybrid, 2, []layout.Range{{Lo: 0, Hi: 2}, {Lo: 2, Hi: 5}}},
	} {
		for seed := range uint64(1) {
			t.Run(fmt.Sprint(c, seed), func(t *testing.T) {
				t.Parallel()
				const steps = 8
				d := movableTables(6, c.workers, optimizer.Adam)
				d.Variables[5].Shape = []int{700, 3}
				d.Hosts = c.hosts
				j := newJob(t, d, c.a, c.servers)
				holders := everyOwner(&j.d)
				if len(c.hosts) > 0 {
					holders = holders[:c.servers]
				}
				random := rand.New(rand.NewPCG(seed, 3))
				moves := make([][]layout.Piece, steps)
				for i := range moves {
					if random.IntN(2) == 0 {
						moves[i] = shuffled(&j.d, random, holders)
					}
				}
				members := j.connect(t)
				n := newReference(&j.d)
				after := make([]map[int][]byte, steps)
				for step := range after {
					after[step] = n.allTables()
					n.step(0, 6, uint64(step), 0.05, everyLeaf)
				}
				must(t, allOf(seekers(members), func(s *seeker) error { return s.moveAndStep(moves, after) }))
				leave(t, j, members)
			})
		}
	}
}

func (s *seeker) moveAndStep(moves [][]layout.Piece, after []map[int][]byte) error {
	ctx := context.Background()
	for step, pieces := range moves {
		wanted := s.Rows.asking != nil || s.Rows.asked == uint64(step)+1
		if s.Rows.asking != nil {
			if err := s.Rows.Await(ctx); err != nil {
				return err
			}
		}
		if pieces != nil {
			if err := s.Placement.Repartition(ctx, pieces); err != nil {
				return err
			}
		}
		if !wanted {
			if err := s.await(ctx); err != nil {
				return err
			}
		}
		if err := s.check(after[step]); err != nil {
			return err
		}
		if err := s.takeWanting(uint64(step), step+1 < len(moves) && s.random.IntN(3) > 0); err != nil {
			return err
		}
	}
	return nil
}

func TestMoveWithPendingPrefetchIsRefused(t *testing.T) {
	j := newJob(t, movableTables(1, 1, optimizer.SGD), policy.Servers, 2)
	m := j.connect(t)[0]
	if err := m.Rows.Prefetch([]message.RowRequest{{Variable: 5, Index: []int64{3}, Into: make([]byte, 12)}}); err != nil {
		t.Fatal(err)
	}
	if err := m.Placement.Repartition(context.Background(), j.d.Pieces); err == nil || !strings.Contains(err.Error(), "were not awaited") {
		t.Error(err)
	}
	if err := m.Rows.Await(context.Background()); err != nil {
		t.Fatal(err)
	}
	must(t, []error{m.Placement.Repartition(context.Background(), j.d.Pieces)})
	leave(t, j, []*member{m})
}
