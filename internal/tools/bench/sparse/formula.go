package main

import "golang.org/x/perf/benchfmt"

// demand is what a step asks of the links, in bytes.
type demand struct {
	direction float64 // through the busiest direction of the busiest link
	series    float64 // that must pass one after the other; 0: direction says it all
}

// formula is what a step of n workers, one on each of n hosts, asks of the
// links whatever a program does.
type formula func(m modelSettings, rows Rows, n float64, at homes) demand

// element is the size of what is trained.
const element = 4

// sizes are the bytes of the model's parts: a row of each table, the dense
// variables, and all of it as if it were dense.
func (m modelSettings) sizes() (word, class, dense, all float64) {
	word, class = element*float64(m.Width), element*float64(m.Width+1)
	cells := 4 * float64(m.Hidden)
	dense = element * (2*float64(m.Width)*cells + cells)
	if m.Hidden != m.Width {
		dense += element * float64(m.Hidden) * float64(m.Width)
	}
	return word, class, dense, dense + float64(m.Vocabulary)*(word+class)
}

// pushed are the bytes of the rows that one worker touches.
func (m modelSettings) pushed(r Rows) float64 {
	word, class, _, _ := m.sizes()
	return r.Words*word + r.Classes*class
}

// allReduce of everything: 2(n-1)/n of all bytes, in both directions of every
// link.
func allReduce(m modelSettings, _ Rows, n float64, _ homes) demand {
	_, _, _, all := m.sizes()
	return demand{direction: 2 * (n - 1) / n * all}
}

// allGather is PyTorch's for sparse gradients: every worker gets the rows of
// all others, and an index of 8 bytes with each. The rest is an all-reduce.
func allGather(m modelSettings, r Rows, n float64, _ homes) demand {
	_, _, dense, _ := m.sizes()
	return demand{direction: (n-1)*(m.pushed(r)+8*(r.Words+r.Classes)) + 2*(n-1)/n*dense}
}

// hybrid spreads rows evenly over the hosts' servers, each worker's own host
// being one of them, and all-reduces the rest.
func hybrid(m modelSettings, r Rows, n float64, _ homes) demand {
	_, _, dense, _ := m.sizes()
	return demand{direction: 2 * (n - 1) / n * (m.pushed(r) + dense)}
}

// plainServers has each variable whole on one server. All other workers'
// gradients come in there, and then the new values go out to them: a step's
// rows cannot be asked for before the last step's gradients are in, so nothing
// overlaps. Where it is not known who lives where, there is one variable on
// each server.
func plainServers(m modelSettings, r Rows, n float64, at homes) demand {
	traffic, total := map[string]float64{}, 0.0
	for variable, bytes := range m.variables(r) {
		home := at[variable]
		if home == "" {
			home = variable
		}
		traffic[home] += bytes
		total += bytes
	}
	var d demand
	for _, bytes := range traffic {
		// The host's own worker has the other servers' variables to bring.
		d.direction = max(d.direction, (n-1)*bytes+(total-bytes))
		d.series = max(d.series, 2*(n-1)*bytes)
	}
	if n < 2 {
		return demand{}
	}
	return d
}

// variables are the bytes of each that one worker touches in a step.
func (m modelSettings) variables(r Rows) map[string]float64 {
	word, class, _, _ := m.sizes()
	matrix := element * 4 * float64(m.Width) * float64(m.Hidden)
	all := map[string]float64{"words": r.Words * word, "classes": r.Classes * class,
		"lstm.input": matrix, "lstm.state": matrix, "lstm.bias": element * 4 * float64(m.Hidden)}
	if m.Hidden != m.Width {
		all["lstm.projection"] = element * float64(m.Hidden) * float64(m.Width)
	}
	return all
}

// values are what is recorded of it, for links that carry so many bytes a second.
func (d demand) values(bytesPerSecond float64) []benchfmt.Value {
	link := d.direction
	if d.series > 0 {
		link = d.series
	}
	return []benchfmt.Value{{Value: d.direction, Unit: "formula-B/op"}, {Value: link / bytesPerSecond, Unit: "formula-sec/op"}}
}

// allowed is the shortest time of a step by the times of its link and of computing:
// what is not in series hides behind the backward pass, which is two thirds of
// computing.
func allowed(link, computing float64, series bool) float64 {
	if series {
		return computing + link
	}
	return computing/3 + max(computing*2/3, link)
}

// computing is the time of a step on n hosts without a network, in seconds:
// that of a step on one host, or longer where n of them keep more cores busy
// than there are.
func computing(oneHost, busyCores float64, n, cores int) float64 {
	return max(oneHost, float64(n)*oneHost*busyCores/float64(cores))
}
