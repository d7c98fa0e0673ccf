package timeline

import (
	"strconv"
	"time"
)

// rows says in which row each event is drawn. A viewer wants the spans of a row
// to nest or to be disjoint. Spans from several goroutines may do neither, so a
// track takes as many rows as necessary.
type rows struct {
	names []string // by row: the track, with a number from its second row on
	of    []int    // by event: its row
}

// layOut gives each event the first possible row of its track. events are
// sorted. Tracks come in the order of their first event; a track's rows are
// next to each other.
func layOut(events []event) rows {
	tracks, order := map[string]*track{}, []*track(nil)
	place := make([]int, len(events))
	for i, e := range events {
		t := tracks[e.track]
		if t == nil {
			t = &track{name: e.track}
			tracks[e.track], order = t, append(order, t)
		}
		place[i] = t.place(e)
	}
	r, first := rows{}, map[string]int{} // by track: its first row
	for _, t := range order {
		first[t.name] = len(r.names)
		for i := range max(1, len(t.open)) {
			name := t.name
			if i > 0 {
				name += " (" + strconv.Itoa(i+1) + ")"
			}
			r.names = append(r.names, name)
		}
	}
	for i, e := range events {
		place[i] += first[e.track]
	}
	r.of = place
	return r
}

type track struct {
	name string
	open [][]time.Time // by row: ends of the open spans, the innermost last
}

// place returns a row of the track, counted from 0.
func (t *track) place(e event) int {
	if e.instant() {
		return 0
	}
	for i := range t.open {
		ends := t.open[i]
		for len(ends) > 0 && !ends[len(ends)-1].After(e.start) {
			ends = ends[:len(ends)-1]
		}
		t.open[i] = ends
		if len(ends) == 0 || !e.end.After(ends[len(ends)-1]) {
			t.open[i] = append(ends, e.end)
			return i
		}
	}
	t.open = append(t.open, []time.Time{e.end})
	return len(t.open) - 1
}
