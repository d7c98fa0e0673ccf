package owner

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/optimizer"
)

// Workers run freely and want rows ahead or not, while tables move before
// some steps: every row is the twin's at every step.
func TestWantedRowsWhileVariablesMove(t *testing.T) {
	for _, c := range []struct {
		workers int
		a       Architecture
		servers int
		hosts   []Range
	}{
		{1, Servers, 2, nil}, {3, Servers, 3, nil}, {4, Hybrid, 2, nil}, {3, AllReduce, 0, nil},
		{4, Servers, 3, []Range{{0, 3}, {3, 4}}}, {5, Hybrid, 2, []Range{{0, 2}, {2, 5}}},
	} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprint(c, seed), func(t *testing.T) {
				t.Parallel()
				const steps = 12
				d := movableTables(6, c.workers, optimizer.Adam)
				d.Variables[5].Shape = []int{700, 3}
				d.Hosts = c.hosts
				j := newJob(t, d, c.a, c.servers)
				owners := everyOwner(&j.d)
				if len(c.hosts) > 0 {
					owners = owners[:c.servers]
				}
				random := rand.New(rand.NewPCG(seed, 3))
				moves := make([][]Piece, steps)
				for i := range moves {
					if random.IntN(2) == 0 {
						moves[i] = shuffled(&j.d, random, owners)
					}
				}
				members := j.connect(t)
				n := newTwin(&j.d)
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

func (s *seeker) moveAndStep(moves [][]Piece, after []map[int][]byte) error {
	ctx := context.Background()
	for step, pieces := range moves {
		wanted := s.asking != nil || s.asked == uint64(step)+1
		if s.asking != nil {
			if err := s.Await(ctx); err != nil {
				return err
			}
		}
		if pieces != nil {
			if err := s.Repartition(ctx, pieces); err != nil {
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

func TestRowsMustBeAwaitedBeforeAMove(t *testing.T) {
	j := newJob(t, movableTables(1, 1, optimizer.SGD), Servers, 2)
	m := j.connect(t)[0]
	if err := m.Want([]Wanted{{5, []int64{3}, make([]byte, 12)}}); err != nil {
		t.Fatal(err)
	}
	if err := m.Repartition(context.Background(), j.d.Pieces); err == nil || !strings.Contains(err.Error(), "were not awaited") {
		t.Error(err)
	}
	if err := m.Await(context.Background()); err != nil {
		t.Fatal(err)
	}
	must(t, []error{m.Repartition(context.Background(), j.d.Pieces)})
	leave(t, j, []*member{m})
}
