package cost

import (
	"fmt"
	"strings"
)

// Report is what a log says of a training's bytes: predicted alone, or with
// what was measured.
type Report struct {
	Cluster   Cluster
	Variables []Variable
	Routes    []Architecture // by variable, where it travels
	Why       []string       // by variable, for a reader; may be nil
	Exchanged []Exchange     // in so many steps; 0 steps: nothing was measured
	Steps     int
}

// columns of the table; what is left of 140 says why.
const columns = "%-20s %8s %14s %8s %9s %8s %15s  %-9s %s"

// Lines are the table, a line for each variable and two for all of them. None
// is longer than 140 characters.
func (r Report) Lines() []string {
	l := newLinks(r.Cluster)
	head := fmt.Sprintf("bytes per step at the busiest link, predicted: %s, %s, %s",
		number(len(r.Cluster.Workers), "worker"), number(len(r.Cluster.Servers), "server"), number(len(l.hosts), "host"))
	if r.Steps > 0 {
		head += "; measured over " + number(r.Steps, "step")
	}
	lines := []string{head, r.line("variable", "size", "rows touched", "ps", "allreduce", "hybrid", "measured", "by", "why")}
	m := r.measured()
	for i := range r.Variables {
		lines = append(lines, r.variable(i, m.variables[i].bytes()))
	}
	return append(lines, r.total(m.all.bytes()), r.mean(m.all.bytes()))
}

func (r Report) variable(i int, of Bytes) string {
	v := r.Variables[i]
	measured := ""
	if r.Steps > 0 {
		measured = compare(of.Busiest, Predict(v, r.Cluster, r.route(i)).Busiest)
	}
	why := ""
	if i < len(r.Why) {
		why = clean(r.Why[i], 60)
	}
	return r.line(clean(v.Name, 20), size(float64(v.Bytes)), touched(v), r.cell(v, PS), r.cell(v, AllReduce), r.cell(v, Hybrid),
		measured, string(r.route(i)), why)
}

func (r Report) line(cells ...any) string {
	return shorten(strings.TrimRight(fmt.Sprintf(columns, cells...), " "), 140)
}

func (r Report) cell(v Variable, a Architecture) string { return known(Predict(v, r.Cluster, a)) }

func known(b Bytes) string {
	if !b.Known {
		return "-"
	}
	return size(b.Busiest)
}

// route is where a variable travels; Hybrid where nobody said.
func (r Report) route(i int) Architecture {
	if i < len(r.Routes) {
		return r.Routes[i]
	}
	return Hybrid
}

// sum is what all variables cost together, without those that are not known.
func (r Report) sum(route func(i int) Architecture) Bytes {
	l, any := newLinks(r.Cluster), false
	for i, v := range r.Variables {
		any = l.predict(v, route(i)) || any
	}
	b := l.bytes()
	b.Known = any
	return b
}

func always(a Architecture) func(int) Architecture { return func(int) Architecture { return a } }

func (r Report) total(of Bytes) string {
	bytes := 0.0
	for _, v := range r.Variables {
		bytes += float64(v.Bytes)
	}
	measured, busiest := "", ""
	if r.Steps > 0 {
		measured = compare(of.Busiest, r.sum(r.route).Busiest)
		busiest = "busiest: " + clean(of.Host, 40)
	}
	return r.line("total", size(bytes), "", known(r.sum(always(PS))), known(r.sum(always(AllReduce))), known(r.sum(always(Hybrid))), measured, "", busiest)
}

func (r Report) mean(of Bytes) string {
	predicted := r.sum(r.route)
	line := "mean over hosts: predicted " + size(predicted.Mean)
	if r.Steps > 0 {
		line += ", measured " + compare(of.Mean, predicted.Mean)
	}
	return line
}

func touched(v Variable) string {
	one, _, ok := v.touched()
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.0f %s", one, percent(one/float64(v.Rows)))
}
