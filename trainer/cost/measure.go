package cost

import (
	"maps"
	"slices"
)

// Exchange is what a worker exchanged with an owner for one variable, in
// bytes. Owner is an index of Cluster.Servers, or, from their number on, of a
// worker. A Variable beyond the report's, such as the loss, counts in sums. An
// exchange that cannot be, as between tasks that are not there, is ignored.
type Exchange struct {
	Variable, Worker, Owner int
	Sent, Received          float64 // by the worker
}

// has reports whether e can be: between tasks of c, of bytes that somebody may
// have sent.
func (c Cluster) has(e Exchange) bool {
	return e.Variable >= 0 && e.Worker >= 0 && e.Worker < len(c.Workers) &&
		e.Owner >= 0 && e.Owner < len(c.Servers)+len(c.Workers) && sane(e.Sent) && sane(e.Received)
}

func sane(bytes float64) bool { return bytes >= 0 && bytes < 1e18 }

// measured is what went through the links per step.
type measured struct {
	variables []*links
	all       *links
}

func (r Report) measured() measured {
	m := measured{all: newLinks(r.Cluster)}
	for range r.Variables {
		m.variables = append(m.variables, newLinks(r.Cluster))
	}
	var hosts []int // of servers, then of workers
	for _, host := range slices.Concat(r.Cluster.Servers, r.Cluster.Workers) {
		hosts = append(hosts, slices.Index(m.all.hosts, host))
	}
	for _, e := range r.Exchanged {
		if !r.Cluster.has(e) {
			continue
		}
		counted := []*links{m.all}
		if e.Variable < len(r.Variables) {
			counted = append(counted, m.variables[e.Variable])
		}
		worker, owner := hosts[len(r.Cluster.Servers)+e.Worker], hosts[e.Owner]
		for _, l := range counted {
			l.send(worker, owner, e.Sent/float64(r.Steps))
			l.send(owner, worker, e.Received/float64(r.Steps))
		}
	}
	return m
}

// load is what a server exchanged per step, within its host too, and the
// variable that has most of it.
type load struct {
	bytes, most float64
	variable    int
}

func (r Report) loads() []load {
	byVariable := make([]map[int]float64, len(r.Cluster.Servers))
	for server := range byVariable {
		byVariable[server] = map[int]float64{}
	}
	for _, e := range r.Exchanged {
		if r.Cluster.has(e) && e.Owner < len(byVariable) {
			byVariable[e.Owner][e.Variable] += (e.Sent + e.Received) / float64(r.Steps)
		}
	}
	loads := make([]load, len(byVariable))
	for server, variables := range byVariable {
		l := &loads[server]
		for _, v := range slices.Sorted(maps.Keys(variables)) {
			l.bytes += variables[v]
			if variables[v] > l.most {
				l.most, l.variable = variables[v], v
			}
		}
	}
	return loads
}
