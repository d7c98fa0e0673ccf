package cost

import "fmt"

// When something is pointed out.
const (
	looksSparse = 0.5 // less of a dense gradient's rows is not zero
	hot         = 2   // times the mean of the other servers
	farBetter   = 0.5 // of the bytes, or fewer, on another way
)

// Notes point out what is odd: a dense variable whose gradient has few rows, a
// sparse one whose rows all travel, servers that are too few, and a server
// that has far more to do than the others. None is longer than 140 characters.
func (r Report) Notes() (notes []string) {
	for i, v := range r.Variables {
		note := r.denseNote(i, v)
		if v.Sparse() {
			note = r.sparseNote(i, v)
		}
		if note != "" {
			notes = append(notes, shorten(clean(v.Name, 40)+" "+note, 140))
		}
	}
	return append(notes, r.hotNotes()...)
}

func (r Report) denseNote(i int, v Variable) string {
	one, _, ok := v.touched()
	if !ok || one >= looksSparse*float64(v.Rows) {
		return ""
	}
	sparse := v
	sparse.RowBytes = v.rowBytes()
	now, then := Predict(v, r.Cluster, r.route(i)), Predict(sparse, r.Cluster, r.embedded())
	if !now.Known || !then.Known || then.Busiest >= now.Busiest {
		return ""
	}
	return fmt.Sprintf("looks sparse: %s of its gradient's rows are not zero; an Embedding would send %s instead of %s",
		percent(one/float64(v.Rows)), size(then.Busiest), size(now.Busiest))
}

// embedded is where sparse variables travel by themselves.
func (r Report) embedded() Architecture {
	if len(r.Cluster.Servers) > 0 {
		return Hybrid
	}
	return AllReduce
}

func (r Report) sparseNote(i int, v Variable) string {
	share, ok := sparseShare(v, r.Cluster)
	now := Predict(v, r.Cluster, r.route(i))
	if !ok || !now.Known {
		return ""
	}
	one, _, _ := v.touched()
	dense := v
	dense.RowBytes = 0
	if share >= 1 {
		return fmt.Sprintf("is sparse, yet %s of its rows are touched: it sends %s, a dense variable would send %s",
			percent(one/float64(v.Rows)), size(now.Busiest), size(Predict(dense, r.Cluster, AllReduce).Busiest))
	}
	then := Predict(v, r.Cluster, AllReduce)
	if r.route(i) != AllReduce && then.Busiest <= farBetter*now.Busiest {
		return fmt.Sprintf("loads the link of %s with %s; with workers as owners, or more servers, the busiest would carry %s",
			clean(now.Host, 30), size(now.Busiest), size(then.Busiest))
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
