package coordinator

import (
	"fmt"
	"math/rand"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// TestWhatIsLost plays random words of generations that follow each other: what is
// said of their losses is what a naive reading of all words says.
func TestWhatIsLost(t *testing.T) {
	said, digits := map[string]int{}, regexp.MustCompile(`\d+`)
	for seed := range int64(4000) {
		g := &game{t: t, seed: seed, rand: rand.New(rand.NewSource(seed)), m: New(protocol.Plan{})}
		for g.generation = range 1 + g.rand.Intn(5) {
			g.another()
			for range g.rand.Intn(12) {
				task := g.anyTask()
				said := protocol.Said{Task: task, Generation: g.generation, Message: g.word(task)}
				g.told(0, said)
				g.m.progressed(said)
			}
			if g.rand.Intn(6) == 0 {
				g.held()
				g.m.progress.holdAt(heldStep(g.generation))
			}
			var got string
			for _, note := range g.m.take() {
				got += note.(Note).Text
			}
			if got != g.expected {
				g.fail("%q, want %q of %+v", got, g.expected, g.courses)
			}
			g.expected = ""
			_, what, _ := strings.Cut(got, ": ")
			said[digits.ReplaceAllString(what, "N")]++
		}
	}
	for _, want := range []string{"", "no step is made again", "steps made since are made again, it is not known how many",
		"N step is made again", "N steps are made again", "at least N steps are made again",
		"N steps of the chief and N of other workers are made again", "at least N steps of the chief and N of other workers are made again",
		"N steps of the chief's group and N of other groups are made again", "N steps of the chief are made again, and N of other workers are lost"} {
		if said[want] < 10 {
			t.Errorf("%q was said %d times: %v", want, said[want], said)
		}
	}
}

// another begins a generation with other tasks.
func (g *game) another() {
	g.tasks = map[cluster.Task]int{{Role: cluster.PS}: 0, {Role: cluster.PS, Index: 1}: 0, cluster.Chief: 0}
	for i := range g.rand.Intn(4) {
		g.tasks[cluster.Task{Role: cluster.Worker, Index: i}] = 0
	}
	g.courses = append(g.courses, g.course())
	g.m.progress.end(g.m.workers())
	g.m.generation, g.m.hostOf = g.generation, g.tasks
}

func (g *game) anyTask() cluster.Task {
	var all []cluster.Task
	for t := range g.tasks {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b cluster.Task) int { return strings.Compare(a.String(), b.String()) })
	return all[g.rand.Intn(len(all))]
}

// course is a generation's: the checkpoint that it goes on from, and what was told
// of its steps.
type course struct {
	cut     []int64 // of the checkpoint, by groups of the generation that made it
	groups  int
	workers int
	words   []protocol.Said
	chief   bool // it has made a step
	held    bool
}

// course is how the generation that begins goes on. In some games all workers are in
// step, in some they are in two groups, in others nobody waits for another.
func (g *game) course() course {
	c := course{groups: 1, cut: []int64{0}}
	for t := range g.tasks {
		if t.Role == cluster.Worker {
			c.workers++
		}
	}
	switch g.seed % 3 {
	case 1:
		c.groups = max(c.workers, 1)
	case 2:
		c.groups = max(1, min(2, c.workers))
	}
	if g.generation == 0 {
		return c
	}
	before := g.courses[g.generation-1]
	if before.cut[0] > 0 && g.rand.Intn(3) > 0 {
		c.cut = before.cut // it made none
		return c
	}
	c.cut = nil
	for range before.groups {
		c.cut = append(c.cut, int64(g.rand.Intn(9)))
	}
	return c
}

// from is the step that a group begins behind.
func (c course) from(group int) int64 {
	if len(c.cut) == c.groups {
		return c.cut[group]
	}
	return c.cut[0]
}

// word is what a task of the present generation says of its steps.
func (g *game) word(t cluster.Task) cluster.ControlMessage {
	c := g.courses[g.generation]
	m := cluster.ControlMessage{Kind: cluster.Heartbeat, Last: g.rand.Intn(3) == 0}
	if g.rand.Intn(9) == 0 {
		m.Kind = cluster.Finished
	}
	if t.Role == cluster.PS {
		for group := range c.groups {
			m.Made = append(m.Made, c.from(group)+int64(g.rand.Intn(9)))
		}
		return m
	}
	m.Groups = c.groups
	m.Group = min(t.Index*c.groups/max(c.workers, 1), c.groups-1)
	m.From = c.from(m.Group)
	m.Step = m.From + int64(g.rand.Intn(9))
	if t.IsChief() && c.groups > 1 {
		m.Cut = c.cut
	}
	return m
}

// steps is what a task of a host says of its steps.
func (g *game) steps(h int) protocol.Message {
	task, _ := g.task(h)
	return protocol.Message{Said: &protocol.Said{Task: task, Generation: g.of(), Message: g.word(task)}}
}

// told notes a task's word. With the chief's first step it is to be said what was
// lost before.
func (g *game) told(h int, s protocol.Said) {
	counts := []cluster.ControlKind{cluster.Heartbeat, cluster.Failed, cluster.Finished}
	if s.Generation != g.generation || !g.runs(h, s.Task) || !slices.Contains(counts, s.Message.Kind) {
		return
	}
	c := &g.courses[g.generation]
	w := s.Message
	done := w.Kind == cluster.Heartbeat && w.Last && w.Cut != nil && g.m.stage == running
	if s.Task.IsChief() && (w.Step > w.From || done) && !c.chief {
		c.chief = true
		g.expected = g.lost(w)
	}
	c.words = append(c.words, s)
}

// held notes that the chief has saved and holds the job.
func (g *game) held() {
	c := &g.courses[g.generation]
	c.held = true
	c.words = append(c.words, protocol.Said{Task: cluster.Chief, Message: cluster.ControlMessage{Step: heldStep(g.generation), Last: true}})
}

// heldStep is behind which step the chief of a generation holds the job.
func heldStep(generation int) int64 { return int64(7 + generation) }

// reached is a naive reading of what was told of a group: what its first worker said
// last, or the least that a server said last, or the most that anybody said.
func (c course) reached(group int) (steps int64, exact bool) {
	var any, own, servers []int64
	for _, s := range c.words {
		w := s.Message
		switch {
		case s.Task.Role == cluster.PS:
			any = append(any, w.Made[group])
			if w.Last {
				servers = append(servers, w.Made[group])
			}
		case w.Group == group:
			any = append(any, w.Step)
			if w.Last {
				own = append(own, w.Step)
			}
		}
	}
	switch {
	case len(own) > 0:
		return slices.Max(own), true
	case len(servers) > 0:
		return max(slices.Min(servers), c.byWorkers(group)), true
	case len(any) > 0:
		return slices.Max(any), false
	}
	return -1, false
}

// byWorkers is the most that a worker of a group has said, -1: none has.
func (c course) byWorkers(group int) int64 {
	most := int64(-1)
	for _, s := range c.words {
		if s.Task.Role == cluster.Worker && s.Message.Group == group {
			most = max(most, s.Message.Step)
		}
	}
	return most
}

// lost is what is to be said of the steps before this generation, "": nothing.
func (g *game) lost(w cluster.ControlMessage) string {
	if g.generation == 0 || w.From == 0 {
		return ""
	}
	first := g.generation - 1
	for first > 0 && !g.courses[first].chief && !g.courses[first].held {
		first--
	}
	for first < g.generation-1 && len(g.courses[first].words) == 0 {
		first++
	}
	c := g.courses[first]
	if c.held && w.From >= heldStep(first) {
		return ""
	}
	var chief, others int64
	told := slices.ContainsFunc(c.words, func(s protocol.Said) bool { return s.Message.Groups > 0 || s.Message.Made != nil })
	exact := told
	for group := range c.groups {
		steps, all := c.reached(group)
		for _, later := range g.courses[first+1 : g.generation] {
			for i := range later.groups {
				n, known := later.reached(i)
				moved := later.byWorkers(i) >= 0 && n > later.from(i)
				if moved && later.groups != c.groups {
					all = false
				} else if moved && i == group {
					steps, all = max(steps, n), all && known
				}
			}
		}
		switch exact = exact && all; {
		case group == 0:
			chief = max(0, steps-w.From)
		case len(w.Cut) == c.groups:
			others += max(0, steps-w.Cut[group])
		default:
			others += max(0, steps-w.From)
		}
	}
	return fmt.Sprintf("generation %d goes on behind step %d: %s", g.generation, w.From,
		loss{chief: chief, others: others, several: told && c.groups > 1, shared: c.workers > c.groups, again: w.Groups == c.groups, exact: exact})
}

// behind checks what is said of steps that were lost.
func (g *game) behind(text string) {
	if !strings.Contains(text, " goes on behind step ") {
		return
	}
	if text != g.expected {
		g.fail("%q, want %q", text, g.expected)
	}
	g.expected = ""
	g.redone++
}
