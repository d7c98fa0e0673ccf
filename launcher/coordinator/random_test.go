package coordinator

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// TestAnyOrderOfEvents plays random events, sensible and senseless ones, and
// then lets every host answer and every task end. Whatever came before, the
// machine keeps its promises; see game.follow.
func TestAnyOrderOfEvents(t *testing.T) {
	rounds := 4000
	if testing.Short() {
		rounds = 1000
	}
	codes, saves := map[int]int{}, map[string]int{}
	for seed := range int64(rounds) {
		g := newGame(t, seed)
		g.follow(g.m.Begin())
		for range g.rand.Intn(40) {
			g.step(g.any())
		}
		g.finish()
		if g.verdict == nil {
			t.Fatalf("seed %d: every task has ended, but the job has not:\n%s", seed, g.log())
		}
		g.step(g.any()) // says nothing any more
		codes[g.verdict.Code]++
		if s := g.verdict.Saved; s != nil {
			saves[s.Cause]++
		}
	}
	// A test whose jobs all end alike would prove little.
	for _, code := range []int{0, 3, CodeTimeout, CodePlx, 130, 137} {
		if codes[code] == 0 {
			t.Errorf("no job ended with %d: %v", code, codes)
		}
	}
	for _, cause := range []string{"", "disk full", "the job ended before it was saved"} {
		if saves[cause] == 0 {
			t.Errorf("no save ended with %q: %v", cause, saves)
		}
	}
}

// game is one random job, with what the machine was told and has said.
type game struct {
	t       *testing.T
	seed    int64
	rand    *rand.Rand
	plan    protocol.Plan
	m       *Machine
	events  []Event
	verdict *protocol.Verdict

	gone    map[int]bool
	checked map[int]bool
	started map[int]int // Starts that were sent since the host's last Up
	exits   map[cluster.Task]protocol.Exit
	timers  map[Timer]bool
}

func newGame(t *testing.T, seed int64) *game {
	g := &game{t: t, seed: seed, rand: rand.New(rand.NewSource(seed)),
		gone: map[int]bool{}, checked: map[int]bool{}, started: map[int]int{}, exits: map[cluster.Task]protocol.Exit{}, timers: map[Timer]bool{}}
	g.plan = protocol.Plan{Job: "j", Grace: 10 * time.Second, Settle: time.Duration(g.rand.Intn(2)) * time.Second,
		StartTimeout: time.Minute, MaxTime: time.Duration(g.rand.Intn(2)) * time.Hour}
	workers, servers := 0, 0
	for i := range 1 + g.rand.Intn(3) {
		h := protocol.HostPlan{Host: fmt.Sprintf("h%d", i)}
		if g.rand.Intn(2) == 0 {
			h.Tasks = append(h.Tasks, cluster.Task{Role: cluster.PS, Index: servers})
			servers++
		}
		for range g.rand.Intn(3) {
			h.Tasks = append(h.Tasks, cluster.Task{Role: cluster.Worker, Index: workers})
			workers++
		}
		g.plan.Hosts = append(g.plan.Hosts, h)
	}
	if workers == 0 {
		g.plan.Hosts[0].Tasks = append(g.plan.Hosts[0].Tasks, cluster.Chief)
	}
	g.m = New(g.plan)
	return g
}

// any is a random event. Good ones are more frequent, so that jobs get
// somewhere.
func (g *game) any() Event {
	h := g.rand.Intn(len(g.plan.Hosts))
	say := func(m protocol.Message) Event { return Heard{Host: h, Message: m} }
	switch g.rand.Intn(22) {
	case 0:
		return Silent{Host: h, Cause: "cut"}
	case 1:
		if g.rand.Intn(4) == 0 {
			return Lost{Host: h, Cause: "lost"}
		}
		return say(protocol.Message{Notice: "hm"})
	case 2:
		if g.rand.Intn(3) == 0 {
			return StopAsked{Reason: "stopped", Code: 130, Grace: time.Duration(g.rand.Intn(11)) * time.Second,
				SaveTime: time.Duration(g.rand.Intn(2)) * time.Minute}
		}
		if g.rand.Intn(3) == 0 {
			return say(g.checkpoint())
		}
		return say(protocol.Message{Renewed: &protocol.Renew{}})
	case 3:
		for timer := range g.timers { // any of those that are set
			delete(g.timers, timer)
			return Elapsed{Timer: timer}
		}
		return Elapsed{Timer: SettleTimer}
	case 4, 5, 6:
		if task, ok := g.task(h); ok {
			e := g.exit(task)
			return say(protocol.Message{Exited: &e})
		}
	case 7:
		if task, ok := g.task(h); ok && g.rand.Intn(3) == 0 {
			return say(protocol.Message{Said: &protocol.Said{Task: task,
				Message: cluster.ControlMessage{Kind: cluster.Failed, Cause: "failed", Peer: g.peer()}}})
		}
	case 8:
		if g.rand.Intn(5) == 0 {
			return say(protocol.Message{Prepared: &protocol.Prepared{Error: "no port"}})
		}
	case 9:
		if g.rand.Intn(5) == 0 {
			return say(protocol.Message{Checked: &protocol.Checked{Failures: []protocol.Unreached{{Cause: "firewall"}}}})
		}
	case 10:
		if g.m.stage == running && g.rand.Intn(2) == 0 {
			return StopAsked{Reason: "stopped", Code: 130, Grace: time.Second, SaveTime: time.Minute}
		}
	}
	return g.good(h)
}

func (g *game) checkpoint() protocol.Message {
	cause := []string{"", "disk full"}[g.rand.Intn(2)]
	return protocol.Message{Said: &protocol.Said{Task: cluster.Chief,
		Message: cluster.ControlMessage{Kind: cluster.Checkpoint, Step: 7, Cause: cause}}}
}

// good is what host h would say next if all went well.
func (g *game) good(h int) Event {
	say := func(m protocol.Message) Event { return Heard{Host: h, Message: m} }
	switch host := g.m.hosts[h]; {
	case !host.up || host.silent != "" || g.m.stage == gathering:
		return Up{Host: h, State: protocol.State{Addr: "a:1", Phase: protocol.Running, Tasks: g.missed(h)}}
	case g.m.stage == preparing:
		return say(protocol.Message{Prepared: prepared(g.plan.Hosts[h], nil)})
	case g.m.stage == checking:
		return say(protocol.Message{Checked: &protocol.Checked{}})
	}
	if g.m.awaitsSave() && g.rand.Intn(2) == 0 {
		return say(g.checkpoint())
	}
	return say(protocol.Message{Started: &protocol.Started{}})
}

func (g *game) missed(h int) map[string]*protocol.TaskNow {
	tasks := map[string]*protocol.TaskNow{"ps:77": nil}
	for _, t := range g.plan.Hosts[h].Tasks {
		now := &protocol.TaskNow{}
		if e, ended := g.exits[t]; ended {
			now.Exit = &e
		} else if g.m.stage >= running && g.rand.Intn(4) == 0 {
			e := g.exit(t)
			now.Exit = &e
		}
		tasks[t.String()] = now
	}
	return tasks
}

func (g *game) task(h int) (cluster.Task, bool) {
	tasks := g.plan.Hosts[h].Tasks
	if len(tasks) == 0 {
		return cluster.Task{}, false
	}
	return tasks[g.rand.Intn(len(tasks))], true
}

func (g *game) peer() string {
	return []string{"", "worker:0", "worker:1 at h:1", "ps:0", "10.0.0.1:7"}[g.rand.Intn(5)]
}

func (g *game) exit(t cluster.Task) protocol.Exit {
	e := protocol.Exit{Task: t, Started: true, Time: time.Unix(g.rand.Int63n(9), 0)}
	switch g.rand.Intn(12) {
	case 0:
		e.Code, e.LostPeer = 3, g.peer()
	case 1:
		e.Signal, e.Code = 9, 137
	case 2:
		e.Started, e.Code = false, 127
	case 3:
		e.Told = true
	case 4:
		e.Native = true
	case 5:
		e.Native, e.Finished = true, true
	}
	return e
}

// finish lets every host answer and every task end, without any timer but that
// of a save.
func (g *game) finish() {
	g.step(Elapsed{Timer: SaveTimer})
	for range 6 {
		for h := range g.plan.Hosts {
			if g.verdict == nil {
				g.step(g.good(h))
			}
		}
	}
	for h, p := range g.plan.Hosts {
		for _, t := range p.Tasks {
			e := protocol.Exit{Task: t, Started: true, Told: g.m.stage == stopping}
			g.step(Heard{Host: h, Message: protocol.Message{Exited: &e}})
		}
	}
}

// step plays an event and notes what it tells.
func (g *game) step(e Event) {
	g.events = append(g.events, e)
	was := g.m.stage
	switch e := e.(type) {
	case Lost:
		g.gone[e.Host] = true
	case Up:
		if g.gone[e.Host] {
			break
		}
		g.started[e.Host] = 0
		for _, exit := range missed(e.State) {
			g.note(exit)
		}
	case Heard:
		if g.gone[e.Host] {
			break
		}
		if e.Message.Checked != nil && was == checking {
			g.checked[e.Host] = true
		}
		if e.Message.Exited != nil {
			g.note(*e.Message.Exited)
		}
	}
	over := g.verdict != nil
	commands := g.m.Step(e)
	if over && len(commands) > 0 {
		g.fail("after the end: %+v", commands)
	}
	g.follow(commands)
}

func (g *game) note(e protocol.Exit) {
	if _, twice := g.exits[e.Task]; !twice {
		g.exits[e.Task] = e
	}
}

// follow checks commands against what the machine promises.
func (g *game) follow(commands []Command) {
	for _, c := range commands {
		switch c := c.(type) {
		case Send:
			g.sent(c)
		case SetTimer:
			if c.After <= 0 {
				g.fail("timer %s of %s", c.Timer, c.After)
			}
			g.timers[c.Timer] = true
		case Conclude:
			if g.verdict != nil {
				g.fail("concluded twice")
			}
			g.verdict = &c.Verdict
			g.judge(c.Verdict)
		}
	}
}

func (g *game) sent(c Send) {
	if g.gone[c.Host] || !g.m.hosts[c.Host].up {
		g.fail("%+v goes to a host that is not there", c)
	}
	if c.Message.Checkpoint != nil && g.m.hostOf[cluster.Chief] != c.Host {
		g.fail("a checkpoint is asked of host %d, which does not run the chief", c.Host)
	}
	if c.Message.Start == nil {
		return
	}
	if len(g.checked) != len(g.plan.Hosts) {
		g.fail("Start before all hosts were checked: %v", g.checked)
	}
	if g.started[c.Host]++; g.started[c.Host] > 1 {
		g.fail("host %d was told twice to start", c.Host)
	}
}

// judge is a naive reading of the exit statuses that plx promises.
func (g *game) judge(v protocol.Verdict) {
	if v.Reason == "" || len(v.Notices) > maxNotices {
		g.fail("verdict %+v", v)
	}
	if v.Saved != nil && v.Saved.Cause == "" && v.Saved.Step != 7 {
		g.fail("saved at step %d, the chief said 7", v.Saved.Step)
	}
	if v.Saved == nil && g.m.saving != nil {
		g.fail("nothing is said of the save")
	}
	if v.First != nil && v.Host != g.plan.Hosts[g.m.hostOf[v.First.Task]].Host {
		g.fail("first %s is not on host %s", v.First.Task, v.Host)
	}
	good := true
	for _, p := range g.plan.Hosts {
		for _, t := range p.Tasks {
			e, ended := g.exits[t]
			if t.Role == cluster.Worker && (!ended || e.Code != 0 || e.Signal != 0 || !e.Started || e.Native && !e.Finished || e.Told) {
				good = false
			}
		}
	}
	if v.Code == 0 && !good {
		g.fail("success, though not all workers exited with 0: %+v", g.exits)
	}
}

func (g *game) fail(format string, args ...any) {
	g.t.Helper()
	g.t.Fatalf("seed %d: %s\n%s", g.seed, fmt.Sprintf(format, args...), g.log())
}

func (g *game) log() string {
	text := fmt.Sprintf("plan %+v\n", g.plan)
	for _, e := range g.events {
		text += fmt.Sprintf("%T%+v\n", e, e)
	}
	return text
}
