package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// system is one way to train the model.
type system struct {
	key, name string   // name has at most 15 letters, for the plot
	torch     bool     // PyTorch's program, not examples/lm
	servers   bool     // with one on every host
	moves     bool     // variables between servers, in its first steps
	places    bool     // them once, after few steps
	args      []string // of the program
	wishes    []string // of the program, where it has these flags
	formula   formula  // what its own traffic allows
}

// compared are the systems, in the order of the tables. The last one is what
// the others are compared with.
var compared = []system{
	{key: "ps", name: "plx plain PS", servers: true, formula: plainServers,
		args:   []string{"--arch=ps", "--partition-bytes=1099511627776"}, // a variable is never cut
		wishes: []string{"--partitions=1", "--search-partitions=false", "--prefetch=false", "--balance=bytes"}},
	{key: "allreduce", name: "plx all-reduce", formula: allReduce,
		args: []string{"--arch=allreduce", "--dense", "--find-sparse=false"}},
	{key: "torch-dense", name: "PyTorch dense", torch: true, formula: allReduce},
	{key: "torch-sparse", name: "PyTorch sparse", torch: true, formula: allGather,
		args: []string{"--sparse"}},
	{key: "hybrid", name: "plx hybrid", servers: true, moves: true, formula: hybrid,
		args: []string{"--arch=hybrid"}},
}

// systems are those that are measured.
func (s *settings) systems() ([]system, error) {
	if s.mode == partitioning {
		return s.partitioned(), nil
	}
	var chosen []system
	for _, key := range s.only {
		if !slices.ContainsFunc(compared, func(x system) bool { return x.key == key }) {
			return nil, fmt.Errorf("--only: there is no system %q", key)
		}
	}
	for _, x := range compared {
		if len(s.only) == 0 || slices.Contains(s.only, x.key) {
			chosen = append(chosen, x)
		}
	}
	return chosen, nil
}

// partitioned are plx with every number of partitions, and with the search.
func (s *settings) partitioned() []system {
	var all []system
	for _, p := range s.parts {
		all = append(all, system{key: strconv.Itoa(p), name: fmt.Sprintf("P = %d", p), servers: true, places: true, formula: hybrid,
			args: []string{"--arch=hybrid", "--search-partitions=false", fmt.Sprintf("--partitions=%d", p)}})
	}
	return append(all, system{key: searching, name: "search", servers: true, moves: true, formula: hybrid,
		args: []string{"--arch=hybrid", "--search-partitions"}})
}

// searching is the key of the run that looks for the number of partitions.
const searching = "search"

var flagLine = regexp.MustCompile(`(?m)^\s+--?([a-z][a-z0-9-]*)`)

// flagsOf finds the flags in what a program says to --help.
func flagsOf(help string) map[string]bool {
	all := map[string]bool{}
	for _, found := range flagLine.FindAllStringSubmatch(help, -1) {
		all[found[1]] = true
	}
	return all
}

func flagName(arg string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	return name
}

// granted are the wishes that the program knows, and those it does not.
func (x system) granted(known map[string]bool) (yes, no []string) {
	for _, wish := range x.wishes {
		if known[flagName(wish)] {
			yes = append(yes, wish)
		} else {
			no = append(no, wish)
		}
	}
	return yes, no
}

// arguments are what the program is given for so many workers.
func (x system) arguments(m modelSettings, workers int, known map[string]bool) []string {
	args := []string{
		fmt.Sprintf("--vocabulary=%d", m.Vocabulary), fmt.Sprintf("--width=%d", m.Width), fmt.Sprintf("--hidden=%d", m.Hidden),
		fmt.Sprintf("--length=%d", m.Length), fmt.Sprintf("--batch-size=%d", workers*m.Batch), fmt.Sprintf("--samples=%d", m.Samples),
		"--steps=1000000000", "--every=1"}
	args = append(args, x.args...)
	if x.torch {
		return args
	}
	wishes, _ := x.granted(known)
	return append(args, wishes...)
}
