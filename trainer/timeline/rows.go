package timeline

import (
	"strconv"
	"time"
)

// rows is where events are drawn. A viewer wants the spans of a row to nest or
// to miss one another, which spans from several goroutines need not do: a
// track takes as many rows as that needs.
type rows struct {
	names []string // by row: the track, and from its second row on a number
	of    []int    // by event
}

// layOut gives each event the first row of its track that can take it. events
// are in order. Tracks come in the order of their first event, a track's rows
// below one another.
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
	var r rows
	for _, t := range order {
		t.first = len(r.names)
		for i := range max(1, len(t.open)) {
			name := t.name
			if i > 0 {
				name += " (" + strconv.Itoa(i+1) + ")"
			}
			r.names = append(r.names, name)
		}
	}
	for i, e := range events {
		place[i] += tracks[e.track].first
	}
	r.of = place
	return r
}

type track struct {
	name  string
	first int           // its first row
	open  [][]time.Time // by row: ends of the spans that may still hold others, the innermost last
}

// place returns a row, counted within the track.
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
