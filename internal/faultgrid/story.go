package main

import (
	"regexp"
	"strconv"
)

// story is what was printed of a job's generations.
type story struct {
	lost    map[int][]int // workers that a generation went on without
	held    map[int]bool  // it was ended by plx scale, behind a checkpoint at which all stood still
	told    map[int]loss  // what was lost, as is said when it has made a step
	resumed []resumption
}

// resumption is a chief's word that it goes on behind a step, from a checkpoint
// that a generation has made. Lines of several hosts come in any order: it does
// not say of which generation the chief was.
type resumption struct{ behind, made int }

// What plx writes of generations.
var (
	anewLine = regexp.MustCompile(`generation (\d+) starts on`)
	heldLine = regexp.MustCompile(`^plx: scaling: saved behind step \d+, generation (\d+) is ended`)
	// Where a task is lost "it" stands for that, else the workers are named.
	withoutLine = regexp.MustCompile(`^plx: (worker:\d+|host) .*; the job goes on without (.*)$`)
	taskName    = regexp.MustCompile(`worker:(\d+)`)
	originLine  = regexp.MustCompile(`going on after step (\d+), from checkpoint \d+-g(\d+)-`)
)

// tell reads what was printed.
func tell(lines []line) story {
	s := story{map[int][]int{}, map[int]bool{}, map[int]loss{}, nil}
	generation := 0
	for _, l := range lines {
		if found := originLine.FindStringSubmatch(l.text); found != nil {
			s.resumed = append(s.resumed, resumption{number(found[1]), number(found[2])})
		}
		if !own(l.text) {
			continue
		}
		if found := anewLine.FindStringSubmatch(l.text); found != nil {
			generation = number(found[1])
		}
		if found := heldLine.FindStringSubmatch(l.text); found != nil {
			s.held[number(found[1])] = true
		}
		if found := withoutLine.FindStringSubmatch(l.text); found != nil {
			for _, task := range taskName.FindAllStringSubmatch(found[1]+found[2], -1) {
				s.lost[generation] = append(s.lost[generation], number(task[1]))
			}
		}
		if told, ok := lossOf(l.text); ok {
			s.told[told.generation] = told
		}
	}
	return s
}

// number is what digits say; more of them than a number has are no step,
// generation or worker.
func number(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return -1
	}
	return n
}
