package protocol

import (
	"fmt"
	"strings"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// StacksHead is the header of a task's stack traces in a stacks file.
type StacksHead struct {
	Task   cluster.Task
	Time   time.Time // when the agent read the stack traces, to the second
	Places []string  // current positions in the program, such as function and line, one per element
}

// placePrefix begins each line of a header that contains an element of
// StacksHead.Places.
const placePrefix = "  at "

// String formats the header: a line with the task and the time, one line for
// each element of Places, and an empty line.
func (h StacksHead) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %s\n", h.Task, h.Time.Format(time.RFC3339))
	for _, place := range h.Places {
		fmt.Fprintf(&text, "%s%s\n", placePrefix, strings.ReplaceAll(place, "\n", " "))
	}
	text.WriteString("\n")
	return text.String()
}

// StacksHeads parses the stack traces of several tasks, as an agent writes
// them, and returns their headers.
func StacksHeads(text string) (all []StacksHead) {
	open := false // true if the previous line belongs to a header, so that a line with placePrefix continues the header
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if place, is := strings.CutPrefix(line, placePrefix); open && is {
			h := &all[len(all)-1]
			h.Places = append(h.Places, place)
			continue
		}
		var h StacksHead
		name, at, _ := strings.Cut(line, ", ")
		var err1, err2 error
		h.Task, err1 = cluster.ParseTask(name)
		h.Time, err2 = time.Parse(time.RFC3339, at)
		if open = err1 == nil && err2 == nil; open {
			all = append(all, h)
		}
	}
	return all
}
