package cost

import (
	"math"
	"slices"
)

// Architecture is where a variable travels.
type Architecture string

// PS is to servers, AllReduce between workers, and Hybrid sends sparse
// variables the one way and dense ones the other.
const (
	PS        Architecture = "ps"
	AllReduce Architecture = "allreduce"
	Hybrid    Architecture = "hybrid"
)

// Cluster says on which host each worker and each server is. Any names do.
type Cluster struct {
	Workers, Servers []string
}

// Variable is what a prediction needs to know of one.
type Variable struct {
	Name     string
	Bytes    int // of all of it
	Rows     int // its first dimension; 0: not known
	RowBytes int // of a row of a sparse variable, 0: it is dense
	// Touched is how many rows one worker touches per step, of a dense variable
	// in how many its gradient is not zero; Union is how many rows all workers
	// touch together. 0: not known; for Union the most is assumed.
	Touched, Union float64
}

// Sparse reports whether rows travel instead of all of the variable.
func (v Variable) Sparse() bool { return v.RowBytes > 0 }

// touched brings what is said of rows within what can be, ok: it is known.
func (v Variable) touched() (one, all float64, ok bool) {
	if !(v.Touched > 0) || v.Rows < 1 {
		return 0, 0, false
	}
	rows := float64(v.Rows)
	one = min(v.Touched, rows)
	if !(v.Union > 0) {
		return one, rows, true
	}
	return one, min(max(v.Union, one), rows), true
}

// indexBytes is the mean size of a row's index where each row is touched with
// the given probability: a difference of 128 or more takes a second byte, one
// of 128*128 a third.
func indexBytes(density float64) float64 {
	bytes := 1.0
	for least := 128.0; least < 1<<62 && density < 1; least *= 128 {
		bytes += math.Exp(least * math.Log1p(-density))
	}
	return bytes
}

// Bytes are per step. Known is false where nothing can be predicted: there
// are no servers, or it is not known how many rows are touched.
type Bytes struct {
	Busiest float64 // through the link of the busiest host, in its busier direction
	Mean    float64 // the same of all hosts, averaged
	Host    string  // the busiest
	Known   bool
}

// Predict returns what v costs per step.
func Predict(v Variable, c Cluster, a Architecture) Bytes {
	l := newLinks(c)
	if !l.predict(v, a) {
		return Bytes{}
	}
	return l.bytes()
}

// links counts what leaves and enters each host.
type links struct {
	hosts            []string
	workers, servers []int // by host
	all              Cluster
	out, in          []float64
}

func newLinks(c Cluster) *links {
	l := &links{all: c}
	count := func(tasks []string) []int {
		counts := make([]int, len(l.hosts))
		for _, host := range tasks {
			counts[slices.Index(l.hosts, host)]++
		}
		return counts
	}
	for _, host := range slices.Concat(c.Workers, c.Servers) {
		if !slices.Contains(l.hosts, host) {
			l.hosts = append(l.hosts, host)
		}
	}
	l.workers, l.servers = count(c.Workers), count(c.Servers)
	l.out, l.in = make([]float64, len(l.hosts)), make([]float64, len(l.hosts))
	return l
}

func (l *links) send(from, to int, bytes float64) {
	if from != to {
		l.out[from] += bytes
		l.in[to] += bytes
	}
}

func (l *links) bytes() Bytes {
	b := Bytes{Known: true}
	for i, host := range l.hosts {
		through := max(l.out[i], l.in[i])
		b.Mean += through / float64(len(l.hosts))
		if i == 0 || through > b.Busiest {
			b.Busiest, b.Host = through, host
		}
	}
	return b
}

// predict adds v's messages and reports whether it could.
func (l *links) predict(v Variable, a Architecture) bool {
	_, _, touched := v.touched()
	served := a == PS || a == Hybrid && v.Sparse()
	switch {
	case len(l.all.Workers) == 0 || served && len(l.all.Servers) == 0 || v.Sparse() && !touched:
		return false
	case v.Sparse() && served:
		l.rowsToServers(v)
	case v.Sparse():
		l.rowsToWorkers(v)
	case served:
		l.denseToServers(float64(v.Bytes))
	default:
		l.denseToWorkers(float64(v.Bytes))
	}
	return true
}

// denseToServers: the sum of a host to each server, and the value back.
func (l *links) denseToServers(bytes float64) {
	for from, workers := range l.workers {
		for to, servers := range l.servers {
			if workers > 0 {
				share := bytes * float64(servers) / float64(len(l.all.Servers))
				l.send(from, to, share)
				l.send(to, from, share)
			}
		}
	}
}

// denseToWorkers: every worker's gradient to each owner, and the value back.
func (l *links) denseToWorkers(bytes float64) {
	for from, workers := range l.workers {
		for to, owners := range l.workers {
			share := bytes * float64(workers) * float64(owners) / float64(len(l.all.Workers))
			l.send(from, to, share)
			l.send(to, from, share)
		}
	}
}

func (l *links) rowsToServers(v Variable) {
	for from, workers := range l.workers {
		if workers == 0 {
			continue
		}
		rows := v.union(workers, len(l.all.Workers))
		for to, servers := range l.servers {
			l.exchange(from, to, v, rows, rows*float64(servers)/float64(len(l.all.Servers)))
		}
	}
}

func (l *links) rowsToWorkers(v Variable) {
	for from, workers := range l.workers {
		rows := v.union(1, 1)
		for to, owners := range l.workers {
			l.exchange(from, to, v, rows, float64(workers)*rows*float64(owners)/float64(len(l.all.Workers)))
		}
	}
}

// exchange asks for rows, gets them and sends their gradients: so many, of a
// list of so many.
func (l *links) exchange(from, to int, v Variable, list, rows float64) {
	index := indexBytes(list / float64(v.Rows))
	l.send(from, to, rows*index)
	l.send(to, from, rows*(index+float64(v.RowBytes)))
	l.send(from, to, rows*(index+float64(v.RowBytes)))
}
