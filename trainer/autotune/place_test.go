package autotune

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
)

// hot returns the rows that a step uses: the first 400 of 4000 rows in every
// step, and one of the others in turn.
func hot(step int) []int64 {
	rows := []int64{int64(400 + step%3600)}
	for row := range int64(400) {
		rows = append(rows, row)
	}
	return rows
}

// loads returns, by shard holder, how many rows were requested in the given
// steps.
func (j *job) loads(steps int, pull func(step int) []int64) []float64 {
	loads := make([]float64, len(j.now.Holders))
	for step := range steps {
		for _, row := range pull(step + 1) {
			for _, p := range j.now.Pieces {
				if j.now.Variables[p.Variable].Sparse != nil && p.Offset <= int(row) && int(row) < p.Offset+p.Count {
					loads[p.Holder]++
				}
			}
		}
	}
	return loads
}

// Rows move once, so that every holder transfers about the same number of
// rows. Rarely used rows do not all stay on one holder.
func TestTuningBalancesHolders(t *testing.T) {
	const rows, parts = 4000, 32
	c := Config{Declaration: declare(t, 4, table("words", rows, 8)), Least: []int{1}, TuneAfterSteps: 20, Partitions: parts}
	j := start(t, c)
	if err := j.train(0, 100, steady, hot); err != nil {
		t.Fatal(err)
	}
	if !j.says("rows moved between step 19 and 20") {
		t.Errorf("the log has no move after step 20:\n%s", strings.Join(j.logged, "\n"))
	}
	loads := j.loads(20, hot)
	mean := 20 * 401.0 / 4
	if len(j.moves) != 1 || j.parts("words") != parts || slices.Max(loads) > 1.1*mean {
		t.Errorf("%d moves, %d partitions, rows pulled by server: %v", len(j.moves), j.parts("words"), loads)
	}
	for _, p := range j.now.Pieces {
		if p.Count > 4*rows/parts {
			t.Errorf("%+v has more than four times the mean of the rows", p)
		}
	}
	// With BySize every row counts the same, so the placement is balanced
	// already.
	c.BySize = true
	if c.Declaration.Pieces, _ = Place(&c.Declaration, c.Least, 0, parts); len(c.Declaration.Pieces) != parts {
		t.Fatalf("placed in %d partitions, want %d", len(c.Declaration.Pieces), parts)
	}
	j = start(t, c)
	if err := j.train(0, 100, steady, hot); err != nil || len(j.moves) > 0 {
		t.Errorf("by size: %v, rows moved to %v", err, j.moves)
	}
}

// If all servers have the same load, they keep their rows, regardless of the
// order of the servers.
func TestBalancedHoldersKeepTheirRows(t *testing.T) {
	d := declare(t, 4, table("words", 1000, 8))
	pieces, err := Place(&d, []int{1}, 0, 4)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pieces {
		pieces[i].Holder = (i*3 + 2) % 4
	}
	d.Pieces = pieces
	j := start(t, Config{Declaration: d, Least: []int{1}, TuneAfterSteps: 10, Partitions: 4})
	if err := j.train(0, 50, steady, func(int) (rows []int64) {
		for row := range int64(1000) {
			rows = append(rows, row)
		}
		return rows
	}); err != nil || len(j.moves) > 0 {
		t.Errorf("%v, rows moved from %v to %v", err, pieces, j.moves)
	}
}

// A server with a dense variable gets fewer rows of tables, because both count
// as load.
func TestDenseVariablesCountAsLoad(t *testing.T) {
	const rows = 1000
	all := func(int) (rows []int64) {
		for row := range int64(1000) {
			rows = append(rows, row)
		}
		return rows
	}
	d := declare(t, 2, dense("w", 4000), table("words", rows, 8)) // the dense variable has half as many bytes as the table
	busy := d.Pieces[0].Holder
	j := start(t, Config{Declaration: d, Least: []int{1}, TuneAfterSteps: 3, Partitions: 8})
	if err := j.train(0, 10, steady, all); err != nil {
		t.Fatal(err)
	}
	loads := j.loads(1, all)
	if loads[busy] != rows/4 || loads[1-busy] != rows*3/4 {
		t.Errorf("rows by server: %v, want a quarter on server %d, which has a dense variable of half the bytes", loads, busy)
	}
	if j.now.Pieces[0] != d.Pieces[0] {
		t.Errorf("the dense variable has moved to %+v", j.now.Pieces[0])
	}
}

// Before anything is measured, Place cuts tables that have a partitioner into
// equal parts, and distributes them over the servers.
func TestPlace(t *testing.T) {
	for name, c := range map[string]struct {
		least            []int // smallest numbers of partitions of two tables, with 1000 and with 6 rows
		most, partitions int
		want             [2]int // partitions
	}{
		"a part for each server":         {least: []int{1, 1}, want: [2]int{4, 4}},
		"not more than rows":             {least: []int{1, 1}, partitions: 9, want: [2]int{9, 6}},
		"as few as the user says":        {least: []int{1, 1}, partitions: 1, want: [2]int{1, 1}},
		"not fewer than the partitioner": {least: []int{5, 3}, partitions: 2, want: [2]int{5, 3}},
		"not more than the limit":        {least: []int{1, 1}, most: 3, want: [2]int{3, 3}},
		"one without a partitioner":      {least: []int{2, 0}, want: [2]int{4, 1}},
		"none with one":                  {least: []int{0, 0}, want: [2]int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			d := declare(t, 4, dense("w", 10), table("long", 1000, 2), table("short", 6, 2))
			before := slices.Clone(d.Pieces)
			pieces, err := Place(&d, c.least, c.most, c.partitions)
			if err != nil {
				t.Fatal(err)
			}
			next, err := d.Placed(pieces)
			if err != nil {
				t.Fatal(err)
			}
			counts := map[int][]int{}
			holders := map[int]map[int]bool{1: {}, 2: {}}
			for _, p := range next.Pieces[1:] {
				counts[p.Variable] = append(counts[p.Variable], p.Count)
				holders[p.Variable][p.Holder] = true
			}
			for i, want := range c.want {
				if got := counts[1+i]; len(got) != want || slices.Max(got)-slices.Min(got) > 1 {
					t.Errorf("table %d is cut in parts of %v rows, want %d equal ones", i, got, want)
				}
			}
			if len(holders[1]) != min(c.want[0], 4) {
				t.Errorf("%d parts are on servers %v", c.want[0], slices.Collect(maps.Keys(holders[1])))
			}
			if !slices.Equal(d.Pieces, before) || pieces[0] != before[0] {
				t.Error("the declaration or its dense variable has changed")
			}
		})
	}
}

func TestPlaceRefuses(t *testing.T) {
	d := declare(t, 2, table("words", 10, 2))
	if _, err := Place(&d, []int{0}, 0, 3); err == nil || !strings.Contains(err.Error(), "--partitions 3") {
		t.Errorf("partitions of a table without a partitioner: %v", err)
	}
	d.Movable = false
	if pieces, err := Place(&d, []int{2}, 0, 0); err != nil || !slices.Equal(pieces, d.Pieces) {
		t.Errorf("rows that cannot move are placed as %v, %v", pieces, err)
	}
}

// With --arch auto, a table of which every row is used moves to the workers;
// other tables stay on servers. If the workers of a host sum their gradients
// first, all tables stay.
func TestAuto(t *testing.T) {
	run := func(aggregated bool) *job {
		d := layout.Declaration{VirtualWorkers: 2, Workers: []layout.Range{{Lo: 0, Hi: 1}, {Lo: 1, Hi: 2}},
			Variables: []layout.Variable{table("seldom", 5000, 8), table("often", 50, 8)}, Movable: true}
		if err := d.AssignPieces(policy.Hybrid, 2, 0); err != nil {
			t.Fatal(err)
		}
		if aggregated {
			d.Hosts = []layout.Range{{Lo: 0, Hi: 2}}
		}
		j := start(t, Config{Declaration: d, Least: []int{1, 1}, TuneAfterSteps: 5, Auto: true, BySize: true})
		for step := 1; step < 20; step++ {
			for range 2 { // what both workers pull
				j.tuner.Pulled(0, []int64{1, 2, 3})
				rows := make([]int64, 50)
				for row := range rows {
					rows[row] = int64(row)
				}
				j.tuner.Pulled(1, rows)
			}
			if _, err := j.tuner.After(t.Context(), step, time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
		return j
	}
	roles := func(j *job) map[string]cluster.Role {
		on := map[string]cluster.Role{}
		for _, p := range j.now.Pieces {
			on[j.now.Variables[p.Variable].Name] = j.now.Holders[p.Holder].Role
		}
		return on
	}
	j := run(false)
	if got := roles(j); got["seldom"] != cluster.PS || got["often"] != cluster.Worker || !j.says(`variable "often" is exchanged by allreduce`) {
		t.Errorf("tables are on %v:\n%s", got, strings.Join(j.logged, "\n"))
	}
	j = run(true)
	if got := roles(j); got["seldom"] != cluster.PS || got["often"] != cluster.PS || !j.says("tables stay on servers") {
		t.Errorf("with local aggregation tables are on %v:\n%s", got, strings.Join(j.logged, "\n"))
	}
}
