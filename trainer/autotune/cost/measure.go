package cost

import (
	"maps"
	"slices"
)

// Cluster names the host of each worker and of each server. Any names do.
type Cluster struct {
	Workers, Servers []string
}

// Hosts are the names of all hosts, each once: those of workers first.
func (c Cluster) Hosts() (all []string) {
	for _, host := range slices.Concat(c.Workers, c.Servers) {
		if !slices.Contains(all, host) {
			all = append(all, host)
		}
	}
	return all
}

// holder is the host of a shard holder, numbered as in [Exchange].
func (c Cluster) holder(i int) string {
	if i < len(c.Servers) {
		return c.Servers[i]
	}
	return c.Workers[i-len(c.Servers)]
}

// Exchange is what one worker exchanged with one shard holder for one variable,
// in bytes. Holder is an index of Cluster.Servers or, from their number on, of
// Cluster.Workers. A Variable beyond the report's, such as the loss, counts in
// sums. The report ignores an exchange between tasks that the cluster lacks.
type Exchange struct {
	Variable, Worker, Holder int
	Sent, Received           float64 // by the worker
}

// has reports whether e is between tasks of c, of a plausible number of bytes.
func (c Cluster) has(e Exchange) bool {
	return e.Variable >= 0 && e.Worker >= 0 && e.Worker < len(c.Workers) &&
		e.Holder >= 0 && e.Holder < len(c.Servers)+len(c.Workers) && sane(e.Sent) && sane(e.Received)
}

func sane(bytes float64) bool { return bytes >= 0 && bytes < 1e18 }

// links counts the bytes that leave and enter each host, by name.
type links struct{ out, in map[string]float64 }

func newLinks() links { return links{map[string]float64{}, map[string]float64{}} }

func (l links) send(from, to string, bytes float64) {
	if from != to {
		l.out[from] += bytes
		l.in[to] += bytes
	}
}

// busiest is the first of the hosts with the most bytes through its link. mean
// is that of all hosts.
func (l links) busiest(hosts []string) (host string, most, mean float64) {
	for i, h := range hosts {
		through := max(l.out[h], l.in[h])
		mean += through / float64(len(hosts))
		if i == 0 || through > most {
			host, most = h, through
		}
	}
	return host, most, mean
}

// measured returns the bytes of a step by variable, and of all together.
func (r Report) measured() (variables []links, all links) {
	for range r.Variables {
		variables = append(variables, newLinks())
	}
	all = newLinks()
	for _, e := range r.Exchanged {
		if r.Steps < 1 || !r.Cluster.has(e) {
			continue
		}
		counted := []links{all}
		if e.Variable < len(r.Variables) {
			counted = append(counted, variables[e.Variable])
		}
		worker, holder := r.Cluster.Workers[e.Worker], r.Cluster.holder(e.Holder)
		for _, l := range counted {
			l.send(worker, holder, e.Sent/float64(r.Steps))
			l.send(holder, worker, e.Received/float64(r.Steps))
		}
	}
	return variables, all
}

// load is what a server exchanged in a step, inside its host too, and the
// variable with the largest part of it.
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
		if r.Cluster.has(e) && e.Holder < len(byVariable) {
			byVariable[e.Holder][e.Variable] += (e.Sent + e.Received) / float64(r.Steps)
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
