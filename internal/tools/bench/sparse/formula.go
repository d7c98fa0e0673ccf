package main

import "golang.org/x/perf/benchfmt"

// demand is the number of bytes that a training step must send over the links.
type demand struct {
	direction float64 // bytes that the busiest link carries in its busier direction
	series    float64 // bytes that must be sent one after the other, without overlap; 0 means that only the field direction limits the step
}

// formula computes the minimum traffic of a step of n workers on n hosts, for
// one method of training. rows is the number of table rows that a worker uses
// in a step, and at gives the server of each variable.
type formula func(m modelSettings, rows Rows, n float64, at homes) demand

// element is the size of a trained number (float32), in bytes.
const element = 4

// sizes returns the sizes of the model's parts in bytes: one row of each
// table, the dense variables, and the whole model.
func (m modelSettings) sizes() (word, class, dense, all float64) {
	word, class = element*float64(m.Width), element*float64(m.Width+1)
	cells := 4 * float64(m.Hidden)
	dense = element * (2*float64(m.Width)*cells + cells)
	if m.Hidden != m.Width {
		dense += element * float64(m.Hidden) * float64(m.Width)
	}
	return word, class, dense, dense + float64(m.Vocabulary)*(word+class)
}

// pushed is the size in bytes of the table rows that one worker updates in a
// step.
func (m modelSettings) pushed(r Rows) float64 {
	word, class, _, _ := m.sizes()
	return r.Words*word + r.Classes*class
}

// allReduce is the demand of an all-reduce of the whole model: 2(n-1)/n times
// the size of the model, in both directions of every link.
func allReduce(m modelSettings, _ Rows, n float64, _ homes) demand {
	_, _, _, all := m.sizes()
	return demand{direction: 2 * (n - 1) / n * all}
}

// allGather is the demand of PyTorch with sparse gradients. Every worker
// receives the table rows of all other workers, with an index of 8 bytes for
// each row. Dense variables use an all-reduce.
func allGather(m modelSettings, r Rows, n float64, _ homes) demand {
	_, _, dense, _ := m.sizes()
	return demand{direction: (n-1)*(m.pushed(r)+8*(r.Words+r.Classes)) + 2*(n-1)/n*dense}
}

// hybrid is the demand of plx's hybrid architecture. Table rows are spread
// evenly over parameter servers on all hosts, so a worker finds some of its
// rows on its own host. Dense variables use an all-reduce.
func hybrid(m modelSettings, r Rows, n float64, _ homes) demand {
	_, _, dense, _ := m.sizes()
	return demand{direction: 2 * (n - 1) / n * (m.pushed(r) + dense)}
}

// plainServers is the demand of a parameter server architecture in which each
// variable is whole on one server. The server receives the gradients from the
// workers on all other hosts and then sends them the new values. These
// transfers do not overlap, because a worker cannot request a step's rows
// before the previous step's gradients have been applied. If the server of a
// variable is unknown, the formula assumes that the variable is alone on its
// server.
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
		// The worker on the server's own host receives the variables of the
		// other servers.
		d.direction = max(d.direction, (n-1)*bytes+(total-bytes))
		d.series = max(d.series, 2*(n-1)*bytes)
	}
	if n < 2 {
		return demand{}
	}
	return d
}

// variables maps each variable to the bytes of it that one worker uses in a
// step.
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

// values returns the demand as benchmark values: in bytes, and in seconds for
// links that carry bytesPerSecond.
func (d demand) values(bytesPerSecond float64) []benchfmt.Value {
	link := d.direction
	if d.series > 0 {
		link = d.series
	}
	return []benchfmt.Value{{Value: d.direction, Unit: "formula-B/op"}, {Value: link / bytesPerSecond, Unit: "formula-sec/op"}}
}

// allowed returns the shortest possible time of a step. link is the time for
// which the link must be busy, computing the time of computing. If series is
// true, the two follow each other. If series is false, the link's time
// overlaps with the backward pass, which is assumed to take two thirds of
// computing.
//
// TODO: measure the share of the backward pass; two thirds is the usual
// estimate.
func allowed(link, computing float64, series bool) float64 {
	if series {
		return computing + link
	}
	return computing/3 + max(computing*2/3, link)
}

// computing returns the seconds that a step on n hosts takes without a
// network. It is the time on one host, or longer if n hosts, which are on one
// machine, together need more cores than the machine has.
func computing(oneHost, busyCores float64, n, cores int) float64 {
	return max(oneHost, float64(n)*oneHost*busyCores/float64(cores))
}
