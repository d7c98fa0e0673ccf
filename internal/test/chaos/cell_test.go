package chaos

import (
	"regexp"
	"slices"
	"testing"
)

// Every combination of victim and fault must have a promise, or a reason why
// the grid does not contain it.
func TestEveryCellHasAPromiseOrAReason(t *testing.T) {
	all, tried := every(), Grid()
	if want := (len(Architectures) + len(modes)) * len(people) * len(faults); len(all) != want {
		t.Errorf("%d cells, want %d", len(all), want)
	}
	for _, c := range all {
		p := c.Promise()
		if (p.Outcome == none) != (p.why != "") || p.why == "nobody has said what is to become of it" {
			t.Errorf("%s: outcome %q, why not %q", c.Name(), p.Outcome, p.why)
		}
		if p.Outcome != none && p.Within <= 0 {
			t.Errorf("%s: no deadline", c.Name())
		}
		if (p.Outcome == Ends) != (len(p.Codes) > 0) {
			t.Errorf("%s: %s, exit statuses %v", c.Name(), p.Outcome, p.Codes)
		}
	}
	// Of a table only what it leaves out can be wrong unseen.
	for _, p := range people {
		if !slices.ContainsFunc(tried, func(c Cell) bool { return c.Victim == p.Victim }) {
			t.Errorf("nothing befalls a %s", p.Victim)
		}
	}
}

func TestEveryPromiseAppliesToACell(t *testing.T) {
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
	for _, c := range Grid() {
		step := c.Target(1)
		if step != c.Target(1) {
			t.Fatalf("%s: another step the second time", c.Name())
		}
		if step < 2*CheckpointEvery || step >= Steps/2 || step%CheckpointEvery == 0 || (step+1)%CheckpointEvery == 0 {
			t.Errorf("%s: step %d", c.Name(), step)
		}
		seen[step] = true
	}
	if len(seen) < 10 {
		t.Errorf("the faults of %d cells come at only %d different steps", len(Grid()), len(seen))
	}
	if c := (Cell{"ps", Worker, Kill}); c.Target(1) == c.Target(2) && c.Target(1) == c.Target(3) {
		t.Error("the seed changes nothing")
	}
}

func TestCellNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range every() {
		if seen[c.Name()] || !regexp.MustCompile(`^[a-z]+/[a-z-]+/[a-z]+$`).MatchString(c.Name()) {
			t.Errorf("name %q", c.Name())
		}
		seen[c.Name()] = true
	}
}
