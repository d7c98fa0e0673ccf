package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// seeker is a worker that requests rows in every step, like a trainer with
// embeddings.
type seeker struct {
	*member
	random *rand.Rand
	wanted []message.RowRequest
}

func seekers(members []*member) (all []*seeker) {
	for _, m := range members {
		all = append(all, &seeker{member: m, random: rand.New(rand.NewPCG(uint64(m.rank), 77))})
	}
	return all
}

// tables are the sparse variables.
func tables(d *layout.Declaration) (all []int) {
	for i, v := range d.Variables {
		if v.Sparse != nil {
			all = append(all, i)
		}
	}
	return all
}

// choose selects random rows, sometimes none, of some of the tables.
func (s *seeker) choose() {
	s.wanted = nil
	for _, i := range tables(s.holders.d) {
		v := s.holders.d.Variables[i]
		w := message.RowRequest{Variable: i}
		rarity := []int{1, 3, 20, 1 << 30}[s.random.IntN(4)]
		for row := range int64(v.Shape[0]) {
			if s.random.IntN(rarity) == 0 {
				w.Index = append(w.Index, row)
			}
		}
		n := len(w.Index) * v.UnitBytes()
		w.Into = wire.Bytes(make([]float64, (n+7)/8))[:n]
		if s.random.IntN(5) > 0 {
			s.wanted = append(s.wanted, w)
		}
	}
}

// allTables returns the whole sparse variables of the reference, by variable.
func (t *reference) allTables() map[int][]byte {
	all := map[int][]byte{}
	for _, i := range tables(t.d) {
		all[i] = t.table(i)
	}
	return all
}

// check compares the received rows with those of the reference.
func (s *seeker) check(tables map[int][]byte) error {
	for _, w := range s.wanted {
		size := s.holders.d.Variables[w.Variable].UnitBytes()
		table := tables[w.Variable]
		for i, row := range w.Index {
			got, want := w.Into[i*size:(i+1)*size], table[int(row)*size:(int(row)+1)*size]
			if string(got) != string(want) {
				return fmt.Errorf("worker:%d: row %d of variable %d is %v, want %v", s.rank, row, w.Variable,
					wire.Floats[float32](got), wire.Floats[float32](want))
			}
		}
	}
	return nil
}

// takeWanting takes a step. If ahead is set, it prefetches the rows of the
// next step meanwhile.
func (s *seeker) takeWanting(step uint64, ahead bool) error {
	if err := s.Begin(0.05); err != nil {
		return err
	}
	if ahead && s.random.IntN(2) == 0 {
		s.choose()
		if err := s.Rows.Prefetch(s.wanted); err != nil {
			return err
		}
		ahead = false
	}
	var sums [][]float64
	for leaf := s.virtual.Lo; leaf < s.virtual.Hi; leaf++ {
		s.compute(context.Background(), leaf, step)
		sums = append(sums, append([]float64{lossOf(0, leaf, step)}, make([]float64, s.holders.d.Metrics)...))
	}
	if ahead { // at the last moment
		s.choose()
		if err := s.Rows.Prefetch(s.wanted); err != nil {
			return err
		}
	}
	_, err := s.Finish(context.Background(), sums)
	return err
}

// await gets the rows of the next step, whether they were prefetched or not.
func (s *seeker) await(ctx context.Context) error {
	if s.Rows.asking == nil {
		s.choose()
		if err := s.Rows.Prefetch(s.wanted); err != nil {
			return err
		}
	}
	return s.Rows.Await(ctx)
}

func allOf(seekers []*seeker, do func(*seeker) error) []error {
	errs := make([]error, len(seekers))
	var running sync.WaitGroup
	for i, s := range seekers {
		running.Go(func() { errs[i] = do(s) })
	}
	running.Wait()
	return errs
}

func wide(leaves, workers int) layout.Declaration {
	d := mixed(leaves, workers)
	d.Variables[5].Shape = []int{700, 3}
	return d
}

// Prefetched rows equal those of the reference at every step, whether workers
// request them early, late or not at all.
func TestPrefetchedRowsMatchReference(t *testing.T) {
	for i, c := range jobsThatWant {
		testWanting(t, c, []string{"always", "mixed"}[i%2])
		if i%4 == 0 {
			testWanting(t, c, "never")
		}
	}
}

// wantingJob is a job whose workers prefetch rows.
type wantingJob struct {
	workers int
	place
	hosts []layout.Range
	clip  float64
}

var jobsThatWant = []wantingJob{
	{1, place{policy.AllReduce, 0}, nil, 50}, {1, place{policy.Servers, 1}, nil, 0}, {3, place{policy.Servers, 2}, nil, 0}, {3, place{policy.Servers, 2}, nil, 50},
	{4, place{policy.Hybrid, 3}, nil, 50}, {4, place{policy.Hybrid, 1}, nil, 0}, {3, place{policy.AllReduce, 0}, nil, 0}, {4, place{policy.AllReduce, 0}, nil, 50},
	{4, place{policy.Servers, 2}, []layout.Range{{Lo: 0, Hi: 2}, {Lo: 2, Hi: 4}}, 50}, {5, place{policy.Servers, 3}, []layout.Range{{Lo: 0, Hi: 4}, {Lo: 4, Hi: 5}}, 0},
	{6, place{policy.Servers, 1}, []layout.Range{{Lo: 0, Hi: 1}, {Lo: 1, Hi: 6}}, 0},
}

func testWanting(t *testing.T, c wantingJob, ahead string) {
	t.Run(fmt.Sprint(c, ahead), func(t *testing.T) {
		t.Parallel()
		d := wide(6, c.workers)
		d.Hosts, d.Clip = c.hosts, c.clip
		j := newJob(t, d, c.a, c.servers)
		checkWanting(t, j, ahead)
	})
}

// Prefetched rows also equal those of the reference if training resumes from a
// checkpoint.
func TestPrefetchedRowsMatchReferenceAfterRestore(t *testing.T) {
	for _, hosts := range [][]layout.Range{nil, {{Lo: 0, Hi: 3}}, {{Lo: 0, Hi: 1}, {Lo: 1, Hi: 3}}} {
		for _, a := range []policy.Architecture{policy.Servers, policy.Hybrid} {
			t.Run(fmt.Sprint(hosts, a), func(t *testing.T) {
				t.Parallel()
				d := wide(6, 3)
				d.Hosts = hosts
				checkWanting(t, restored(t, d, 3, a, 2), "mixed")
			})
		}
	}
}

func checkWanting(t *testing.T, j *testJob, ahead string) {
	members := j.connect(t)
	all := seekers(members)
	n := trained(&j.d, j.d.First)
	for step := j.d.First; step < j.d.First+5; step++ {
		if step%2 == 0 {
			if err := members[0].Saves.Save(); err != nil {
				t.Fatal(err)
			}
		}
		must(t, allOf(all, func(s *seeker) error { return s.await(context.Background()) }))
		tables := n.allTables()
		must(t, allOf(all, func(s *seeker) error { return s.check(tables) }))
		must(t, allOf(all, func(s *seeker) error {
			return s.takeWanting(step, ahead == "always" || ahead == "mixed" && s.random.IntN(2) == 0)
		}))
		n.step(0, j.d.VirtualWorkers, step, 0.05, everyLeaf)
		for _, m := range members {
			n.compare(t, m.values, worker(m.rank).String())
		}
	}
	leave(t, j, members) // leave with a prefetch request that was not awaited
}

// Workers wait for each other only in Finish, so their prefetch requests
// arrive in any order.
func TestPrefetchedRowsMatchReferenceWhileWorkersRunFreely(t *testing.T) {
	for name, hosts := range map[string][]layout.Range{"alone": nil, "hosts": {{Lo: 0, Hi: 3}, {Lo: 3, Hi: 5}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const steps = 12
			d := wide(6, 5)
			d.Hosts = hosts
			j := newJob(t, d, policy.Servers, 3)
			members := j.connect(t)
			n := newReference(&j.d)
			after := make([]map[int][]byte, steps) // by number of steps: the tables of the reference
			for step := range after {
				after[step] = n.allTables()
				n.step(0, 6, uint64(step), 0.05, everyLeaf)
			}
			must(t, allOf(seekers(members), func(s *seeker) error {
				for step := range uint64(steps) {
					if err := s.await(context.Background()); err != nil {
						return err
					}
					if err := s.check(after[step]); err != nil {
						return err
					}
					if err := s.takeWanting(step, s.random.IntN(3) > 0); err != nil {
						return err
					}
				}
				return nil
			}))
			leave(t, j, members)
		})
	}
}

func TestInvalidPrefetchRequestsAreRefused(t *testing.T) {
	j := newJob(t, mixed(2, 1), policy.Servers, 1)
	m := j.connect(t)[0]
	ctx := context.Background()
	rows := func(index ...int64) message.RowRequest {
		return message.RowRequest{Variable: 5, Index: index, Into: make([]byte, 12*len(index))}
	}
	wants := func(wanted ...message.RowRequest) func() error {
		return func() error { return m.Rows.Prefetch(wanted) }
	}
	refuse := func(want string, do func() error) {
		t.Helper()
		if err := do(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	refuse("without a prefetch request", func() error { return m.Rows.Await(ctx) })
	refuse("which is not sparse", wants(message.RowRequest{Variable: 0}))
	refuse("variable 9", wants(message.RowRequest{Variable: 9}))
	refuse("row 41 is outside", wants(rows(41)))
	refuse("row 3 after row 3", wants(rows(3, 3)))
	refuse("11 bytes for 1 rows", wants(message.RowRequest{Variable: 5, Index: []int64{3}, Into: make([]byte, 11)}))
	refuse("requested twice", wants(rows(3), rows(4)))
	if err := m.Rows.Prefetch([]message.RowRequest{rows(1, 2)}); err != nil {
		t.Fatal(err)
	}
	refuse("were not awaited", wants(rows(3)))
	if err := m.Rows.Await(ctx); err != nil {
		t.Fatal(err)
	}
	refuse("rows of step 0 are requested twice", wants(rows(3)))
	if err := m.Begin(0.1, 0, 1); err != nil {
		t.Fatal(err)
	}
	if err := m.Rows.Prefetch([]message.RowRequest{rows(1, 2)}); err != nil {
		t.Fatal(err)
	}
	refuse("rows of step 1 are awaited at step 0", func() error { return m.Rows.Await(ctx) })
	if _, err := m.Finish(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := m.Rows.Await(ctx); err != nil {
		t.Fatal(err)
	}
	leave(t, j, []*member{m})

	j = newJob(t, in("async", unclipped(2, 1)), policy.Servers, 1)
	m = j.connect(t)[0]
	refuse("synchronisation async", wants(rows(1)))
	leave(t, j, []*member{m})
}
