package trainer

import (
	"cmp"
	"log/slog"
	"slices"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/cost"
	"github.com/plx-run/plx/trainer/owner"
)

// mostListed is how many variables the table of bytes lists, the largest; the
// others share a line.
const mostListed = 20

// costs describes all variables to package cost, and which line of its report
// each has. touched is how many rows of a table one worker touches in a step.
func (r *Replica) costs(touched []float64) (report cost.Report, line []int) {
	d, j := &r.declared, r.job
	for i := range j.NumWorkers() {
		report.Cluster.Workers = append(report.Cluster.Workers, j.address(cluster.Task{Role: cluster.Worker, Index: i}))
	}
	for i := range j.servers() {
		report.Cluster.Servers = append(report.Cluster.Servers, j.address(cluster.Task{Role: cluster.PS, Index: i}))
	}
	order := make([]int, len(d.Variables))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(bytesOf(d.Variables[b]), bytesOf(d.Variables[a])) })
	line = make([]int, len(order)+1) // the last is the loss
	for at, i := range order {
		if at >= mostListed {
			line[i] = mostListed
			continue
		}
		line[i] = at
		report.Variables = append(report.Variables, r.cost(i, touched))
		route, why := r.route(i)
		report.Routes, report.Why = append(report.Routes, route), append(report.Why, why)
	}
	if len(order) > mostListed {
		others := cost.Variable{Name: count(len(order)-mostListed, "smaller one")}
		for _, i := range order[mostListed:] {
			others.Bytes += bytesOf(d.Variables[i])
		}
		report.Variables, report.Routes = append(report.Variables, others), append(report.Routes, report.Routes[0])
	}
	line[len(order)] = len(report.Variables)
	return report, line
}

// bytesOf is the size of a variable that was checked.
func bytesOf(v owner.Variable) int {
	n, _ := v.Elements()
	return n * v.Dtype.Size()
}

// cost describes a variable.
func (r *Replica) cost(i int, touched []float64) cost.Variable {
	v := r.declared.Variables[i]
	c := cost.Variable{Name: v.Name, Bytes: bytesOf(v)}
	if len(v.Shape) > 0 {
		c.Rows = v.Shape[0]
	}
	if v.Sparse != nil {
		c.RowBytes = c.Bytes / c.Rows
		c.Touched = touched[i-(len(r.declared.Variables)-len(r.tables))]
	}
	return c
}

// route is where a variable travels, and why there.
func (r *Replica) route(i int) (cost.Architecture, string) {
	for _, p := range r.declared.Pieces {
		if p.Variable == i && r.declared.Owners[p.Owner].Role == cluster.PS {
			return cost.PS, ""
		}
	}
	return cost.AllReduce, ""
}

// most is how many rows of each table one worker can touch in a step: one for
// each place where it looks one up.
func (r *Replica) most() (touched []float64) {
	l := r.lanes[0]
	for i, e := range l.model.Embeddings {
		n := 0
		for _, at := range l.of(i) {
			n += len(at.index)
		}
		touched = append(touched, float64(min(n*(r.hi-r.lo), e.Rows)))
	}
	return touched
}

// predict logs what every variable is going to send, where hosts send to one
// another.
func (r *Replica) predict() {
	if report, _ := r.costs(r.most()); spread(report.Cluster) {
		r.log(report.Lines())
	}
}

// spread reports whether there are several hosts.
func spread(c cost.Cluster) bool {
	all := slices.Concat(c.Workers, c.Servers)
	return slices.ContainsFunc(all, func(host string) bool { return host != all[0] })
}

func (r *Replica) log(lines []string) {
	for _, line := range lines {
		r.job.Logf(slog.LevelInfo, "%s", line)
	}
}

// report logs what was measured in a window of steps, next to what the
// formulas say for as many rows. all are every worker's exchanged bytes.
func (d *director) report(window int, sum numbers, all []float64) {
	r := d.r
	steps, workers := float64(window), float64(r.job.NumWorkers())
	touched := make([]float64, len(sum.touched))
	for i, n := range sum.touched {
		touched[i] = n / steps / workers
	}
	report, line := r.costs(touched)
	if !spread(report.Cluster) {
		return
	}
	for i, part := range sum.filled {
		if at := line[i]; part > 0 && at < len(report.Variables) && report.Variables[at].Rows > 0 {
			report.Variables[at].Touched = part / workers * float64(report.Variables[at].Rows)
		}
	}
	report.Steps = window
	owners := len(r.declared.Owners)
	each := 2 * owners * len(line)
	for at := 0; at < len(all); at += 2 {
		report.Exchanged = append(report.Exchanged, cost.Exchange{
			Variable: line[at%each/(2*owners)], Worker: at / each, Owner: r.place(at % (2 * owners) / 2),
			Sent: all[at], Received: all[at+1],
		})
	}
	r.log(report.Lines())
	r.log(report.Notes())
}

// place is an owner as package cost counts them: servers, then workers.
func (r *Replica) place(index int) int {
	t := r.declared.Owners[index]
	if t.Role == cluster.PS {
		return t.Index
	}
	return len(r.job.servers()) + t.Index
}
