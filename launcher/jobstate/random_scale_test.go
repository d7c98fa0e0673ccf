package jobstate

import (
	"fmt"
	"reflect"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// scales is the test's own model of the changes of hosts in a game.
type scales struct {
	asked    map[string]int  // how often each was answered
	changed  protocol.Scaled // the last answer that told of a change
	last     string
	holds    int // how often the job was held
	done     int
	refused  int
	wentBack int
	left     map[int]bool
}

// scaling is a wish for other hosts, sensible or not, or what the chief says.
func (g *game) scaling(h int) protocol.Message {
	switch g.rand.Intn(6) {
	case 0, 1:
		return protocol.Message{Scale: g.wish()}
	case 2:
		return protocol.Message{TaskReport: &protocol.TaskMessage{Task: cluster.Chief, Generation: g.of(),
			Message: cluster.ControlMessage{Kind: cluster.Checkpoint, Request: g.rand.Intn(g.m.scale.begun + 1), Cause: "full"}}}
	case 3:
		return g.steps(h)
	}
	return g.holding()
}

func (g *game) wish() *protocol.Scale {
	if g.scales.last != "" && g.rand.Intn(4) == 0 { // after a lost connection
		return &protocol.Scale{ID: g.scales.last}
	}
	s := &protocol.Scale{ID: fmt.Sprint("s", len(g.scales.asked)), Known: len(g.m.hosts) - g.rand.Intn(10)/9, SaveTime: time.Minute}
	for range g.rand.Intn(3) {
		i := len(g.m.hosts) + len(s.Join)
		s.Join = append(s.Join, protocol.Joining{HostPlan: protocol.HostPlan{Host: fmt.Sprintf("h%d", i), Folder: fmt.Sprint(i),
			Tasks: []protocol.TaskSpec{{Task: cluster.Task{Role: cluster.Worker, Index: 9}}}}})
	}
	for i := range g.m.hosts {
		if g.rand.Intn(3) == 0 {
			s.Leave = append(s.Leave, i)
		}
	}
	return s
}

// holding is what the chief says when it holds the job.
func (g *game) holding() protocol.Message {
	return protocol.Message{TaskReport: &protocol.TaskMessage{Task: cluster.Chief, Generation: g.generation,
		Message: cluster.ControlMessage{Kind: cluster.Checkpoint, Request: g.m.scale.begun, Hold: true, Step: heldStep(g.generation)}}}
}

// answered checks the answer to a Scale request.
func (g *game) answered(a Answer) {
	s := a.Scaled
	if _, known := g.scales.asked[s.ID]; !known {
		g.fail("an answer to %q, which nobody asked", s.ID)
	}
	g.scales.asked[s.ID]++
	switch {
	case s.Cause != "":
		g.scales.refused++
	case s.To > 0:
		g.scales.done++
		if s.ID == g.scales.changed.ID {
			// A repeated request gets the same answer as before.
			if !reflect.DeepEqual(s, g.scales.changed) {
				g.fail("%+v was answered with %+v first", s, g.scales.changed)
			}
			return
		}
		g.scales.changed = s
		workers := 0
		for t := range g.tasks {
			if t.Role == cluster.Worker {
				workers++
			}
		}
		if workers != s.To || g.m.stage < running || s.Step == 0 {
			g.fail("%+v, with %d workers in stage %d", s, workers, g.m.stage)
		}
	}
}

// leaves notes that a host is none of the job's any more: nothing of the present
// generation may run there.
func (g *game) leaves(h int) {
	if g.scales.left[h] {
		g.fail("host %d leaves twice", h)
	}
	for t, of := range g.tasks {
		if of == h {
			g.fail("host %d leaves with %s", h, t)
		}
	}
	g.scales.left[h], g.unclear[h] = true, false
}

// about reports whether an event is about a host that has left.
func (g *game) about(e Event) bool {
	h := e.about()
	return h >= 0 && g.m.hosts[h].place == left
}

// unanswered fails the test if a Scale request got no answer.
func (g *game) unanswered() {
	for id, n := range g.scales.asked {
		if n == 0 {
			g.fail("%s was never answered", id)
		}
	}
}
