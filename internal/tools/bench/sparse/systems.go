package main

import (
	"fmt"
	"slices"
	"strconv"
)

// system is one way to train the model.
type system struct {
	key, name string   // name has at most 15 letters, for the plot
	torch     bool     // PyTorch's program, not examples/lm
	servers   bool     // with one on every host
	moves     bool     // variables between servers, in its first steps
	places    bool     // them once, after few steps
	series    bool     // what a step sends can not be hidden behind computing
	args      []string // of the program
	formula   formula  // what its own traffic allows
	wanted    float64  // how many times its words per second the last one should have
}

// compared are the systems, in the order of the tables. The last one is what
// the others are compared with.
var compared = []system{
	{key: "ps", name: "plx plain PS", servers: true, series: true, formula: plainServers, wanted: 2.8,
		args: []string{"--arch=ps", "--partition-bytes=1099511627776", // a variable is never cut
			"--partitions=1", "--search-partitions=false", "--prefetch=false", "--balance=bytes"}},
	{key: "allreduce", name: "plx all-reduce", formula: allReduce, wanted: 6.02,
		args: []string{"--arch=allreduce", "--dense", "--find-sparse=false"}},
	{key: "torch-dense", name: "PyTorch dense", torch: true, formula: allReduce, wanted: 1},
	{key: "torch-sparse", name: "PyTorch sparse", torch: true, formula: allGather, wanted: 1, args: []string{"--sparse"}},
	{key: "hybrid", name: "plx hybrid", servers: true, moves: true, formula: hybrid, args: []string{"--arch=hybrid"}},
}

// best is the system that the others are compared with.
const best = "hybrid"

// searching is the key of the run that looks for the number of partitions.
const searching = "search"

// systems are those that are measured: in the other mode plx with every number
// of partitions, and with the search.
func (s *settings) systems() (all []system, err error) {
	if s.mode == partitioning {
		for _, p := range s.parts {
			all = append(all, system{key: strconv.Itoa(p), servers: true, places: true, formula: hybrid,
				args: []string{"--arch=hybrid", "--search-partitions=false", fmt.Sprintf("--partitions=%d", p)}})
		}
		return append(all, system{key: searching, servers: true, moves: true, formula: hybrid,
			args: []string{"--arch=hybrid", "--search-partitions"}}), nil
	}
	for _, key := range s.only {
		if !slices.ContainsFunc(compared, func(x system) bool { return x.key == key }) {
			return nil, fmt.Errorf("--only: there is no system %q", key)
		}
	}
	return slices.DeleteFunc(slices.Clone(compared), func(x system) bool { return s.only != nil && !slices.Contains(s.only, x.key) }), nil
}

// arguments are what the program is given for so many workers.
func (x system) arguments(m modelSettings, workers int) []string {
	return append([]string{
		fmt.Sprintf("--vocabulary=%d", m.Vocabulary), fmt.Sprintf("--width=%d", m.Width), fmt.Sprintf("--hidden=%d", m.Hidden),
		fmt.Sprintf("--length=%d", m.Length), fmt.Sprintf("--batch-size=%d", workers*m.Batch), fmt.Sprintf("--samples=%d", m.Samples),
		"--steps=1000000000", "--every=1"}, x.args...)
}
