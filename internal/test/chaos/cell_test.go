package chaos

import (
	"regexp"
	"slices"
	"testing"
)

// Every victim and fault has its promise, or a reason why there is no cell.
func TestEveryCellIsSpokenFor(t *testing.T) {
	all, tried := every(), grid()
	if want := (len(architectures) + len(modes)) * len(people) * len(faults); len(all) != want {
		t.Errorf("%d cells, want %d", len(all), want)
	}
	for _, c := range all {
		p := c.promise()
		if (p.outcome == none) != (p.why != "") || p.why == "nobody has said what is to become of it" {
			t.Errorf("%s: outcome %q, why not %q", c.Name(), p.outcome, p.why)
		}
		if p.outcome != none && p.within <= 0 {
			t.Errorf("%s: no deadline", c.Name())
		}
		if (p.outcome == ends) != (len(p.codes) > 0) {
			t.Errorf("%s: %s, exit statuses %v", c.Name(), p.outcome, p.codes)
		}
	}
	// Of a table only what it leaves out can be wrong unseen.
	for _, p := range people {
		if !slices.ContainsFunc(tried, func(c Cell) bool { return c.Victim == p.victim }) {
			t.Errorf("nothing befalls a %s", p.victim)
		}
	}
}

func TestRowsOfPromisesAreAllReached(t *testing.T) {
	for i, r := range promises {
		reached := slices.ContainsFunc(every(), func(c Cell) bool {
			first := slices.IndexFunc(promises, func(r row) bool { return r.holds(c) })
			return first == i
		})
		if !reached {
			t.Errorf("row %d, %v x %v, says nothing that a row above it does not", i, r.victims, r.faults)
		}
	}
}

func TestTargets(t *testing.T) {
	seen := map[int]bool{}
	for _, c := range grid() {
		step := c.target(1)
		if step != c.target(1) {
			t.Fatalf("%s: another step the second time", c.Name())
		}
		if step < 2*checkpointEvery || step >= steps/2 || step%checkpointEvery == 0 || (step+1)%checkpointEvery == 0 {
			t.Errorf("%s: step %d", c.Name(), step)
		}
		seen[step] = true
	}
	if len(seen) < 10 {
		t.Errorf("the faults of %d cells come at only %d different steps", len(grid()), len(seen))
	}
	if c := (Cell{"ps", worker, kill}); c.target(1) == c.target(2) && c.target(1) == c.target(3) {
		t.Error("the seed changes nothing")
	}
}

func TestNamesAreTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range every() {
		if seen[c.Name()] || !regexp.MustCompile(`^[a-z]+/[a-z-]+/[a-z]+$`).MatchString(c.Name()) {
			t.Errorf("name %q", c.Name())
		}
		seen[c.Name()] = true
	}
}
