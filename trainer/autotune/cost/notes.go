package cost

import "fmt"

const (
	looksSparse = 0.5 // a dense gradient with fewer rows that are not zero is noted
	hot         = 2   // a server with more than so many times the mean of the others is noted
)

// Notes returns advice: a dense variable whose gradient has few rows, a sparse
// one whose rows all travel, and a server with far more to do than the others.
// No note is longer than 140 characters.
func (r Report) Notes() (notes []string) {
	for _, v := range r.Variables {
		if note := v.note(); note != "" {
			notes = append(notes, shorten(clean(v.Name, 40)+" "+note, 140))
		}
	}
	return append(notes, r.hotNotes()...)
}

func (v Variable) note() string {
	density, _ := v.density()
	share, known := v.share()
	switch {
	case !known:
		return ""
	case !v.Sparse() && density < looksSparse:
		return fmt.Sprintf("looks sparse: %s of its gradient's rows are not zero; an Embedding would send these rows only", percent(density))
	case v.Sparse() && share >= 1:
		return fmt.Sprintf("is sparse, yet a worker touches %s of its rows; a dense variable would send less", percent(density))
	}
	return ""
}

func (r Report) hotNotes() (notes []string) {
	if r.Steps < 1 || len(r.Cluster.Servers) < 2 {
		return nil
	}
	loads, total := r.loads(), 0.0
	for _, l := range loads {
		total += l.bytes
	}
	for server, l := range loads {
		others := (total - l.bytes) / float64(len(loads)-1)
		if l.bytes <= hot*others {
			continue
		}
		name := "the loss"
		if l.variable < len(r.Variables) {
			name = clean(r.Variables[l.variable].Name, 40)
		}
		notes = append(notes, shorten(fmt.Sprintf("ps:%d on %s is hot: %s per step, the others have %s on average; %s of it is %s",
			server, clean(r.Cluster.Servers[server], 30), size(l.bytes), size(others), percent(l.most/l.bytes), name), 140))
	}
	return notes
}
