package main

import (
	"errors"
	"fmt"
	"regexp"
)

// loss is what plx says is made again, once a generation has made a step. Where
// workers wait for each other the chief's steps are everybody's.
type loss struct {
	generation, behind int
	chief, others      amount
}

// amount is a number of steps; with least it may be more.
type amount struct {
	n     int
	least bool
}

// What plx writes of a loss. amountOf is the place for every way in which it
// counts steps: the number, and whose they are.
var (
	lossLine = regexp.MustCompile(`^plx: generation (\d+) goes on behind step (\d+): (.*)$`)
	amountOf = regexp.MustCompile(`(at least )?\b(\d+|no)(?: steps?)?(?: of (?:the )?(chief|other workers|another worker))?(?:,? and | (?:is|are) (?:made again|lost))`)
	unknown  = regexp.MustCompile(`it is not known how many`)
)

// lossOf reads a line about a loss.
func lossOf(text string) (l loss, ok bool) {
	found := lossLine.FindStringSubmatch(text)
	if found == nil {
		return loss{}, false
	}
	l = loss{generation: number(found[1]), behind: number(found[2])}
	if unknown.MatchString(found[3]) {
		l.chief.least, l.others.least = true, true
		return l, true
	}
	parts := amountOf.FindAllStringSubmatch(found[3], -1)
	if parts == nil {
		return loss{}, false
	}
	for _, part := range parts {
		of := &l.chief
		if part[3] != "" && part[3] != "chief" {
			of = &l.others
		}
		of.least = part[1] != "" || l.chief.least // it is said once, of all
		if part[2] != "no" {
			of.n = number(part[2])
		}
	}
	return l, true
}

// gone counts pushes that are no more in effect: those of which workers were
// told that they are made, and those of which they were told nothing. Servers
// may have made such a one: plx may count it.
type gone struct{ made, open int }

// against says why an amount is not what was lost.
func (told amount) against(g gone, whose string) error {
	if told.n > g.made+g.open || !told.least && told.n < g.made {
		return fmt.Errorf("%d steps of %s were lost, and %d more of which it was not told; plx says %d (at least: %t)", g.made, whose, g.open, told.n, told.least)
	}
	return nil
}

// losses compares what plx has said with the books. A generation that ends before
// plx has heard of its first step tells nothing: the next one tells it all.
func (a *account) losses() error {
	var errs []error
	before := map[key]map[int]bool{} // told of
	for g := 1; g <= a.last; g++ {
		told, said := a.told[g]
		if !said && g < a.last {
			continue
		}
		b := a.books[key{g, 0}]
		if b == nil {
			errs = append(errs, fmt.Errorf("plx says what generation %d has lost, whose chief has noted nothing", g))
			continue
		}
		if said && told.behind != b.from {
			errs = append(errs, fmt.Errorf("generation %d goes on behind step %d, plx says %d", g, b.from, told.behind))
		}
		chief, others := a.lostAt(g, before)
		switch {
		case b.from == 0: // all is made again, and plx says that it begins anew
		case said:
			errs = append(errs, told.chief.against(chief, "the chief"), told.others.against(others, "other workers"))
		case chief.made+others.made > 0:
			errs = append(errs, fmt.Errorf("generation %d has lost %d steps of the chief and %d of other workers, and nobody was told", g, chief.made, others.made))
		}
	}
	return errors.Join(errs...)
}

// lostAt counts what generation g has lost of those before it, but for what was
// counted before. In backup a step is everybody's.
func (a *account) lostAt(g int, before map[key]map[int]bool) (chief, others gone) {
	type step struct{ generation, number int }
	together := map[step]bool{} // in backup: whether anybody was told that it is made
	for _, k := range a.keys() {
		b := a.books[k]
		if before[k] == nil {
			before[k] = map[int]bool{}
		}
		for n := range b.begun {
			if k.generation >= g || before[k][n] || a.kept(g, k, n) {
				continue
			}
			before[k][n] = true
			switch s := (step{k.generation, n}); {
			case a.mode == "backup":
				together[s] = together[s] || b.made[n]
			case k.worker == 0:
				chief.add(b.made[n])
			default:
				others.add(b.made[n])
			}
		}
	}
	for _, made := range together {
		chief.add(made)
	}
	return chief, others
}

func (g *gone) add(made bool) {
	if made {
		g.made++
	} else {
		g.open++
	}
}

// kept reports whether a push is in effect when generation g begins.
func (a *account) kept(g int, k key, step int) bool {
	for later := g; later > k.generation; {
		made := a.origin[later]
		if made == k.generation {
			if cut, known := a.cut(k, later); known {
				return step < cut
			}
			return a.count(counters[0], k, step) > 0
		}
		later = made
	}
	return false
}
