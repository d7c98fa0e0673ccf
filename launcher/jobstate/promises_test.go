package jobstate

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// step passes an event to the machine and updates the test's own model of the
// job.
func (g *game) step(e Event) {
	g.events = append(g.events, e)
	was := g.m.stage
	if g.about(e) {
		g.follow(g.m.Step(e))
		return
	}
	switch e := e.(type) {
	case Lost:
		if !g.gone[e.Host] {
			g.gone[e.Host], g.unclear[e.Host] = true, e.Clear > 0
			delete(g.member, e.Host)
			for t, h := range g.tasks {
				g.gaveUp[t] = g.gaveUp[t] || h == e.Host
			}
		}
	case Up:
		if g.gone[e.Host] && !g.plan.Restarts.Revive {
			break
		}
		g.gone[e.Host], g.unclear[e.Host] = false, false
		g.started[e.Host] = 0
		if now := e.State.Tasks[cluster.Chief.String()]; now != nil && g.runs(e.Host, cluster.Chief) && e.State.Generation == g.generation {
			g.tolerates = g.tolerates || now.ToleratesLoss
		}
		for _, m := range missed(e.State) {
			if m.TaskReport != nil {
				g.taskMessage(e.Host, *m.TaskReport)
			}
			if m.Exited != nil {
				g.note(e.Host, *m.Exited, was)
			}
		}
	case StopAsked:
		g.asked = true
		if was == running && e.SaveTime > 0 && !g.wants {
			g.saved = g.stillHeld()
			g.wants = g.saved == 0
		}
	case Elapsed:
		for h := range g.plan.Hosts {
			if e.Timer == clearTimer(h) {
				g.unclear[h] = false
			}
		}
	case Heard:
		g.heard(e, was)
	}
	over := g.verdict != nil
	commands := g.m.Step(e)
	if over && len(commands) > 0 {
		g.fail("after the end: %+v", commands)
	}
	g.follow(commands)
	if g.expected != "" && !over {
		g.fail("it was not said that %s", g.expected)
	}
}

func (g *game) heard(e Heard, was stage) {
	if g.gone[e.Host] {
		return
	}
	m := e.Message
	if m.Scale != nil && was != over {
		if _, again := g.scales.asked[m.Scale.ID]; !again {
			g.scales.asked[m.Scale.ID] = 0
		}
		g.scales.last = m.Scale.ID
	}
	if m.Prepared != nil && was == preparing && m.Prepared.Generation == g.generation && m.Prepared.Error == "" {
		g.prepared[e.Host] = true
	}
	if m.Checked != nil && was == checking && m.Checked.Generation == g.generation {
		g.checked[e.Host] = true
	}
	if m.Exited != nil {
		g.note(e.Host, *m.Exited, was)
	}
	if s := m.TaskReport; s != nil && s.Message.Kind == cluster.Failed {
		g.gaveUp[s.Task] = true
	}
	if s := m.TaskReport; s != nil && was != over {
		g.taskMessage(e.Host, *s)
	}
	if s := m.TaskReport; s != nil && s.Message.Kind == cluster.ToleratesLoss && s.Task == cluster.Chief && s.Generation == g.generation && g.runs(e.Host, s.Task) {
		g.tolerates = true
	}
	if s := m.TaskReport; s != nil && s.Message.Kind == cluster.Checkpoint && s.Task == cluster.Chief && s.Generation == g.generation &&
		s.Message.Request == 0 && g.runs(e.Host, s.Task) && g.wants && g.answer == nil {
		g.answer = &s.Message
	}
}

func (g *game) runs(h int, t cluster.Task) bool {
	of, known := g.tasks[t]
	return known && of == h
}

func (g *game) note(h int, e protocol.Exit, was stage) {
	if !g.runs(h, e.Task) || e.Generation != g.generation {
		return
	}
	if _, twice := g.exits[e.Task]; !twice {
		g.exits[e.Task] = e
		g.tolerated[e.Task] = g.tolerates && (was == starting || was == running) && e.Task.Role == cluster.Worker && !e.Task.IsChief()
	}
}

// follow checks that commands do not break a promise of the machine, such as
// starting each task only once.
func (g *game) follow(commands []Command) {
	g.plan.Hosts = planOf(g.m)
	for _, c := range commands {
		switch c := c.(type) {
		case Join:
			if c.Host >= len(g.plan.Hosts) || c.Joining.Host != g.plan.Hosts[c.Host].Host {
				g.fail("%+v joins %+v", c, g.plan.Hosts)
			}
		case Leave:
			g.leaves(c.Host)
		case Holding:
			g.scales.holds++
			g.held()
		case Answer:
			g.answered(c)
		case Note:
			if strings.HasPrefix(c.Text, "not scaled: ") && strings.Contains(c.Text, "back to the old hosts") {
				g.scales.wentBack++
			}
			g.resumption(c.Text)
		case Send:
			g.sent(c)
		case SetTimer:
			if c.After <= 0 {
				g.fail("timer %s of %s", c.Timer, c.After)
			}
			g.timers[c.Timer] = true
		case Lay:
			g.laid(c)
		case Conclude:
			if g.verdict != nil {
				g.fail("concluded twice")
			}
			g.verdict = &c.Verdict
			g.judge(c.Verdict)
		}
	}
}

// laid checks a new generation.
func (g *game) laid(l Lay) {
	r := g.plan.Restarts
	if l.Generation != g.generation+1 || l.Generation > max(r.Max, 0)+g.scales.holds+g.scales.wentBack {
		g.fail("generation %d after %d, of %d restarts", l.Generation, g.generation, r.Max)
	}
	if g.asked {
		g.fail("generation %d of a job that was asked to stop", l.Generation)
	}
	workers, all := 0, 0
	in := map[int]bool{}
	for i, h := range l.Hosts {
		if h.Left && len(h.Tasks) > 0 || g.scales.left[i] && !h.Left {
			g.fail("host %d has left with %+v", i, h)
		}
		if h.Left {
			continue
		}
		if g.unclear[i] {
			g.fail("generation %d while something may still run on host %d", l.Generation, i)
		}
		if in[i] = len(h.Tasks) > 0; in[i] && g.gone[i] {
			g.fail("host %d has tasks and no agent", i)
		}
		workers, all = workers+protocol.Workers(h.Tasks), all+protocol.Workers(g.plan.Hosts[i].Tasks)
	}
	if least := r.MinWorkers; workers < least || workers == 0 || least == 0 && workers < all {
		g.fail("%d workers of %d, at least %d", workers, all, least)
	}
	for i, want := range naivelyRenumbered(g.plan.Hosts, in) {
		if len(want) > 0 && !reflect.DeepEqual(want, l.Hosts[i].Tasks) {
			g.fail("host %d has %+v, want %+v", i, l.Hosts[i].Tasks, want)
		}
	}
	g.begin(l.Generation, l.Hosts)
}

func (g *game) sent(c Send) {
	if g.gone[c.Host] || g.scales.left[c.Host] || !g.m.hosts[c.Host].up {
		g.fail("%+v goes to a host that is not there", c)
	}
	if p := c.Message.Prepare; p != nil {
		g.member[c.Host] = true
		groups := map[int]bool{} // hosts before this one that have workers
		for t, h := range g.tasks {
			if t.Role == cluster.Worker && h < c.Host {
				groups[h] = true
			}
		}
		if p.Generation != g.generation || p.GroupRank != len(groups) {
			g.fail("%+v in generation %d, with %d groups before", p, g.generation, len(groups))
		}
	}
	if _, ended := g.exits[cluster.Chief]; c.Message.Checkpoint != nil && c.Message.Checkpoint.Hold == nil && !c.Message.Checkpoint.Resume && (ended || !g.wants || !g.runs(c.Host, cluster.Chief)) {
		g.fail("a checkpoint is asked of host %d: ended %v, wanted %v, of %v", c.Host, ended, g.wants, g.tasks)
	}
	if c.Message.Start == nil {
		return
	}
	for h := range g.member {
		if !g.prepared[h] || !g.checked[h] {
			g.fail("Start before host %d was checked: %v, %v", h, g.prepared, g.checked)
		}
	}
	if c.Message.Start.Generation != g.generation || !g.member[c.Host] {
		g.fail("%+v in generation %d of %v", c, g.generation, g.member)
	}
	if g.started[c.Host]++; g.started[c.Host] > 1 {
		g.fail("host %d was told twice to start", c.Host)
	}
}

// judge compares the verdict's exit status with a simple model of the
// documented exit statuses.
func (g *game) judge(v protocol.Verdict) {
	if v.Reason == "" || len(v.Notices) > maxNotices || v.Generation != g.generation {
		g.fail("verdict %+v", v)
	}
	g.judgeSave(v.Saved)
	g.judgeEnds(v)
	if v.First != nil && v.Host != g.plan.Hosts[g.tasks[v.First.Task]].Host {
		g.fail("first %s is not on host %s", v.First.Task, v.Host)
	}
	good, gaveUp, workers, chief := 0, 0, 0, false
	for t := range g.tasks {
		if t.Role != cluster.Worker {
			continue
		}
		workers++
		if e, ended := g.exits[t]; ended && e.Code == 0 && e.Signal == 0 && e.Started && (!e.Native || e.Finished) && (!e.StopRequested || e.Finished) {
			good++
			chief = chief || t.IsChief()
			if g.gaveUp[t] {
				gaveUp++ // it exited with 0 all the same
			}
		}
	}
	if v.Code == 0 && good < workers && (!g.tolerates || !chief || good < g.plan.Restarts.MinWorkers) {
		g.fail("success, though not all workers exited with 0: %+v", g.exits)
	}
	without := 0
	if _, after, ok := strings.Cut(v.Reason, ", without "); ok {
		fmt.Sscan(after, &without) // 0 is wrong then
	}
	if v.Code == 0 && (without < workers-good || without > workers-good+gaveUp) {
		g.fail("success with %d of %d workers, and the reason is %q", good, workers, v.Reason)
	}
	if v.First != nil && g.tolerated[v.First.Task] && !strings.Contains(v.Reason, "(--min-workers)") {
		if _, needed := g.tasks[cluster.Chief]; needed && v.First.LostPeer == "" {
			g.fail("%s ends the job, which tolerates its loss", v.First.Task)
		}
	}
}

// judgeEnds expects each task of the last generation once in the record, and at most the one
// that is blamed as the culprit.
func (g *game) judgeEnds(v protocol.Verdict) {
	if len(v.Ends) > 0 && len(v.Ends)+v.MoreEnds != len(g.tasks) || v.First != nil && v.Culprit != v.First.Task.String() || len(v.Ends) > 0 && v.Code == 0 {
		g.fail("the record %+v of %d tasks", v, len(g.tasks))
	}
	seen := map[string]bool{}
	for _, e := range v.Ends {
		task, err := cluster.ParseTask(e.Task)
		if h, known := g.tasks[task]; err != nil || !known || g.plan.Hosts[h].Host != e.Host || seen[e.Task] || (e.Part == protocol.Culprit) != (e.Task == v.Culprit) {
			g.fail("%+v in the record %+v", e, v)
		}
		seen[e.Task] = true
	}
}

// judgeSave compares the recorded result of a checkpoint with the chief's
// answer.
func (g *game) judgeSave(s *protocol.Saved) {
	if s == nil && g.wants {
		g.fail("nothing is said of the save")
	}
	if s == nil || s.Cause != "" && s.Cause != "disk full" {
		return
	}
	if s.Cause == "" && (s.Step == g.saved || g.saved == 0 && g.answer == nil && g.scales.holds > 0) {
		return // that with which the hosts were to be changed
	}
	if g.answer == nil || g.answer.Step != s.Step || g.answer.Cause != s.Cause {
		g.fail("the verdict says %+v of the save, the chief said %+v", s, g.answer)
	}
}

func (g *game) fail(format string, args ...any) {
	g.t.Helper()
	g.t.Fatalf("seed %d: %s\n%s", g.seed, fmt.Sprintf(format, args...), g.log())
}

func (g *game) log() string {
	text := fmt.Sprintf("plan %+v\nstage %d\n", g.plan, g.m.stage)
	for _, e := range g.events {
		text += fmt.Sprintf("%T%+v\n", e, e)
	}
	return text
}
