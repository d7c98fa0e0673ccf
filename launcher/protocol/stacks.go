package protocol

import (
	"fmt"
	"strings"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// StacksHead begins the stacks of a task as they are written.
type StacksHead struct {
	Task   cluster.Task
	Time   time.Time // when they were read, to the second
	Places []string  // where the task is, one line each
}

// placePrefix begins the line of a place.
const placePrefix = "  at "

// String has a line for the task, a line for each place, and an empty one.
func (h StacksHead) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %s\n", h.Task, h.Time.Format(time.RFC3339))
	for _, place := range h.Places {
		fmt.Fprintf(&text, "%s%s\n", placePrefix, strings.ReplaceAll(place, "\n", " "))
	}
	text.WriteString("\n")
	return text.String()
}

// StacksHeads returns the heads in the stacks of several tasks.
func StacksHeads(text string) (all []StacksHead) {
	open := false // the lines of a head go on
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
