package main

import (
	"fmt"
	"slices"
	"strconv"
)

// system is one method of training the model.
type system struct {
	key, name string   // key names the system in samples; name is for the plot and has at most 15 letters
	torch     bool     // the system is the PyTorch program instead of examples/lm
	servers   bool     // the system has a parameter server on every host
	moves     bool     // the system moves variables between servers during its first steps
	places    bool     // the system moves variables once, after a few steps
	series    bool     // the system's sending cannot overlap with computing
	args      []string // additional arguments of the training program
	formula   formula  // computes the minimum traffic of the system
	wanted    float64  // goal: the words per second of plx hybrid, divided by those of this system
}

// compared lists the systems in the order of the tables. The tables compare
// each of the other systems with the last one.
var compared = []system{
	{key: "ps", name: "plx plain PS", servers: true, series: true, formula: plainServers, wanted: 2.8,
		args: []string{"--arch=ps", "--partition-bytes=1099511627776", // the size of a partition is so large that no variable is divided
			"--partitions=1", "--search-partitions=false", "--prefetch=false", "--balance=bytes"}},
	{key: "allreduce", name: "plx all-reduce", formula: allReduce, wanted: 6.02,
		args: []string{"--arch=allreduce", "--dense", "--find-sparse=false"}},
	{key: "torch-dense", name: "PyTorch dense", torch: true, formula: allReduce, wanted: 1},
	{key: "torch-sparse", name: "PyTorch sparse", torch: true, formula: allGather, wanted: 1, args: []string{"--sparse"}},
	{key: "hybrid", name: "plx hybrid", servers: true, moves: true, formula: hybrid, args: []string{"--arch=hybrid"}},
}

// best is the key of the system with which the tables compare all other
// systems.
const best = "hybrid"

// searching is the key of the run in which plx searches for the number of
// partitions.
const searching = "search"

// systems returns the systems to measure. In the mode partitions, these are
// plx with each fixed number of partitions, and plx with its search for the
// number.
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

// arguments returns the arguments of the training program for a number of
// workers.
func (x system) arguments(m modelSettings, workers int) []string {
	return append([]string{
		fmt.Sprintf("--vocabulary=%d", m.Vocabulary), fmt.Sprintf("--width=%d", m.Width), fmt.Sprintf("--hidden=%d", m.Hidden),
		fmt.Sprintf("--length=%d", m.Length), fmt.Sprintf("--batch-size=%d", workers*m.Batch), fmt.Sprintf("--samples=%d", m.Samples),
		"--steps=1000000000", "--every=1"}, x.args...)
}
