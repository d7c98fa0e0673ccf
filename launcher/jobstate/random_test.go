package jobstate

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// TestAnyOrderOfEvents plays random events, sensible and senseless ones, and
// then lets the world come to an end in one of some ways. Whatever came
// before, the machine keeps its promises, see game.follow, and concludes.
// The long tests play more of them. Among those from seed 3000 on all ends come soon.
func TestAnyOrderOfEvents(t *testing.T) { anyOrderOfEvents(t, 3000, 600) }

// anyOrderOfEvents plays rounds games, by seeds from first on.
func anyOrderOfEvents(t *testing.T, first int64, rounds int) {
	without, short := 0, 0
	codes, generations, saves, later := map[int]int{}, map[int]int{}, map[string]int{}, 0
	scaled, resumed := scales{}, 0
	for seed := range int64(rounds) {
		g := newGame(t, first+seed)
		g.follow(g.m.Begin())
		for range g.rand.Intn(120) {
			if g.rand.Intn(10) == 0 {
				g.drive()
			}
			g.step(g.any())
		}
		ends := []func(){g.allGoesWell, g.allIsLost, g.stopped, g.onlyTimersRun}
		ends[g.rand.Intn(len(ends))]()
		if g.verdict == nil {
			g.fail("the job has not ended")
		}
		g.step(g.any()) // says nothing any more
		g.unanswered()
		resumed += g.resumed
		scaled.done += g.scales.done
		scaled.refused += g.scales.refused
		scaled.wentBack += g.scales.wentBack
		codes[g.verdict.Code]++
		generations[g.m.generation.number]++
		if strings.Contains(g.verdict.Reason, ", without ") {
			without++
		}
		if g.tolerates && strings.Contains(g.verdict.Reason, "(--min-workers)") {
			short++
		}
		if s := g.verdict.Saved; s != nil {
			saves[s.Cause]++
			if g.m.generation.number > 0 && s.Cause == "" {
				later++
			}
		}
	}
	// A test whose jobs all end alike would prove little.
	for _, code := range []int{0, 3, exit.CodeTimeout, exit.CodePlx, 130, 137} {
		if codes[code] == 0 {
			t.Errorf("no job ended with %d: %v", code, codes)
		}
	}
	for n := range 4 {
		if generations[n] < rounds/600 {
			t.Errorf("%d jobs ended in generation %d: %v", generations[n], n, generations)
		}
	}
	for _, cause := range []string{"", "disk full", "the job ended before it was saved", "the job had not started", "it was being restarted"} {
		if saves[cause] == 0 {
			t.Errorf("no save ended with %q: %v", cause, saves)
		}
	}
	if without < rounds/300 || short == 0 {
		t.Errorf("%d jobs were done without some workers, %d had too few", without, short)
	}
	if scaled.done < rounds/200 || scaled.refused < rounds/40 || scaled.wentBack < max(1, rounds/1500) {
		t.Errorf("%d changes of hosts, %d refused, %d gone back on", scaled.done, scaled.refused, scaled.wentBack)
	}
	if resumed < rounds/100 {
		t.Errorf("of %d generations it was said from which step they resume", resumed)
	}
	if later == 0 {
		t.Error("no later generation was saved")
	}
}

// game is one randomly played job: a Machine, and the test's own model of its
// state.
type game struct {
	t       *testing.T
	seed    int64
	rand    *rand.Rand
	plan    protocol.Plan
	m       *Machine
	events  []Event
	verdict *protocol.Verdict

	generation int
	gone       map[int]bool
	unclear    map[int]bool // hosts that are gone where something may still run
	member     map[int]bool // hosts that were asked to prepare this generation
	prepared   map[int]bool
	checked    map[int]bool
	started    map[int]int // Starts that were sent since the host's last Up
	tasks      map[cluster.Task]int
	exits      map[cluster.Task]protocol.Exit
	timers     map[Timer]bool

	scales    scales
	scaleable bool
	tolerates bool                  // the chief has said so
	tolerated map[cluster.Task]bool // workers whose exits came when it had
	gaveUp    map[cluster.Task]bool // they said so, or their host was lost

	courses  []course // by generation
	expected string   // what is to be said of the step after which this generation resumes
	resumed  int      // how often it was said

	asked  bool                    // to stop
	wants  bool                    // to be saved before
	saved  int64                   // step after which it was held when it was asked to be saved; 0: it was not
	answer *cluster.ControlMessage // the chief's, the first since
}

func newGame(t *testing.T, seed int64) *game {
	g := &game{t: t, seed: seed, rand: rand.New(rand.NewSource(seed)), gone: map[int]bool{}, unclear: map[int]bool{}, timers: map[Timer]bool{},
		scales: scales{asked: map[string]int{}, left: map[int]bool{}}}
	g.plan = protocol.Plan{Job: "j", Grace: 10 * time.Second, Settle: time.Duration(g.rand.Intn(2)) * time.Second,
		StartTimeout: time.Minute, MaxTime: time.Duration(g.rand.Intn(2)) * time.Hour, Lease: 30 * time.Second}
	if g.rand.Intn(3) > 0 {
		g.plan.Restarts = protocol.Restarts{Max: g.rand.Intn(6), PerHour: g.rand.Intn(5), MinWorkers: g.rand.Intn(3),
			WaitHost: time.Duration(g.rand.Intn(2)) * time.Minute, Backoff: time.Second, Revive: g.rand.Intn(2) == 0}
	}
	g.scaleable = g.rand.Intn(2) == 0
	g.populate()
	g.m = New(g.plan)
	g.begin(0, g.plan.Hosts)
	return g
}

// populate gives the plan hosts with tasks.
func (g *game) populate() {
	workers, servers := 0, 0
	for i := range 1 + g.rand.Intn(3) {
		h := protocol.HostPlan{Host: fmt.Sprintf("h%d", i), Drives: i == 0 && !g.plan.Restarts.Revive && g.rand.Intn(2) == 0}
		if g.rand.Intn(2) == 0 {
			h.Tasks = append(h.Tasks, protocol.TaskSpec{Task: cluster.Task{Role: cluster.PS, Index: servers}})
			servers++
		}
		for rank := range g.rand.Intn(3) {
			h.Tasks = append(h.Tasks, protocol.TaskSpec{Task: cluster.Task{Role: cluster.Worker, Index: workers}, LocalRank: rank})
			workers++
		}
		g.plan.Hosts = append(g.plan.Hosts, h)
	}
	if workers == 0 {
		g.plan.Hosts[0].Tasks = append(g.plan.Hosts[0].Tasks, protocol.TaskSpec{Task: cluster.Chief})
	}
}

func (g *game) begin(generation int, hosts []protocol.HostPlan) {
	g.generation = generation
	g.member, g.prepared, g.checked, g.started = map[int]bool{}, map[int]bool{}, map[int]bool{}, map[int]int{}
	g.exits, g.tasks = map[cluster.Task]protocol.Exit{}, map[cluster.Task]int{}
	g.tolerates, g.tolerated, g.gaveUp = false, map[cluster.Task]bool{}, map[cluster.Task]bool{}
	for i, h := range hosts {
		for _, t := range h.Tasks {
			g.tasks[t.Task] = i
		}
	}
	g.courses = append(g.courses, g.course())
}

// any returns a random event. Useful events are more frequent, so that jobs
// make progress.
func (g *game) any() Event {
	h := g.rand.Intn(len(g.plan.Hosts))
	say := func(m protocol.Message) Event { return Heard{Host: h, Message: m} }
	switch g.rand.Intn(22) {
	case 0:
		return Silent{Host: h, Cause: "cut"}
	case 1:
		if g.rand.Intn(4) == 0 {
			return g.lose(h)
		}
		return say(protocol.Message{Notice: "hm"})
	case 2:
		if g.rand.Intn(15) == 0 {
			return StopAsked{Reason: "stopped", Code: 130, Grace: time.Duration(g.rand.Intn(11)) * time.Second,
				SaveTime: time.Duration(g.rand.Intn(2)) * time.Minute}
		}
		if g.rand.Intn(3) == 0 {
			return say(g.checkpoint(h))
		}
		if g.rand.Intn(3) == 0 {
			return Suspended{For: time.Minute}
		}
		return say(protocol.Message{Renewed: &protocol.Renew{}})
	case 3, 4:
		if e, ok := g.ring(); ok {
			return e
		}
	case 5, 6:
		if task, ok := g.task(h); ok {
			e := g.exit(task)
			e.Generation = g.of()
			return say(protocol.Message{Exited: &e})
		}
	case 7:
		if task, ok := g.task(h); ok && g.rand.Intn(3) == 0 {
			m := g.word(task)
			m.Kind, m.Cause, m.Peer = cluster.Failed, "failed", g.peer()
			return say(protocol.Message{TaskReport: &protocol.TaskMessage{Task: task, Generation: g.of(), Message: m}})
		}
	case 8:
		if g.rand.Intn(5) == 0 {
			return say(protocol.Message{Prepared: &protocol.Prepared{Generation: g.of(), Error: "no port"}})
		}
	case 9:
		if g.rand.Intn(5) == 0 {
			return say(protocol.Message{Checked: &protocol.Checked{Generation: g.of(),
				Failures: []protocol.Unreached{{Peer: protocol.Peer{Index: g.rand.Intn(5) - 1}, Cause: "firewall"}}}})
		}
	case 10:
		if g.m.stage == running && g.seed%3 == 0 && g.rand.Intn(3) == 0 { // some games are about saves, not restarts
			return StopAsked{Reason: "stopped", Code: 130, Grace: time.Second, SaveTime: time.Minute}
		}
	case 11:
		if task, ok := g.task(h); ok && g.rand.Intn(3) == 0 {
			return say(g.tolerating(task, g.of()))
		}
	case 12:
		return say(g.steps(h))
	case 13, 14, 15, 16:
		if g.scaleable {
			return say(g.scaling(h))
		}
	}
	return g.good(h)
}

// drive plays what brings a job on, as a rule until it runs.
func (g *game) drive() {
	for range 40 {
		switch g.m.stage {
		case running, finishing, over:
			return
		case settling, stopping, regrouping:
			for _, t := range []Timer{settleTimer, stopTimer, backoffTimer, reviveTimer} {
				if g.timers[t] {
					delete(g.timers, t)
					g.step(Elapsed{Timer: t})
				}
			}
		}
		h := g.rand.Intn(len(g.plan.Hosts))
		if g.m.hosts[h].leaving && !g.gone[h] {
			g.step(g.lose(h))
		}
		g.step(g.good(h))
	}
}

// of is the generation that a message is of: mostly the present one.
func (g *game) of() int {
	if g.rand.Intn(6) == 0 {
		return g.generation + g.rand.Intn(3) - 1
	}
	return g.generation
}

func (g *game) lose(h int) Event {
	return Lost{Host: h, Cause: "lost", Clear: time.Duration(g.rand.Intn(2)) * time.Minute, Answers: g.rand.Intn(2) == 0}
}

// ring is any of the timers that are set.
func (g *game) ring() (Event, bool) {
	set := slices.Sorted(maps.Keys(g.timers))
	if len(set) == 0 {
		return nil, false
	}
	timer := set[g.rand.Intn(len(set))]
	delete(g.timers, timer)
	return Elapsed{Timer: timer}, true
}

// good returns the event that host h would report next if nothing went wrong.
func (g *game) good(h int) Event {
	say := func(m protocol.Message) Event { return Heard{Host: h, Message: m} }
	switch host := g.m.hosts[h]; {
	case !host.up || host.disconnected != "" || g.m.stage == gathering:
		state := protocol.State{Addr: "a:1", Phase: protocol.Running, Generation: g.generation, Tasks: g.missed(h)}
		if host.lost {
			state.Phase, state.Tasks = protocol.Idle, nil
		}
		return Up{Host: h, State: state}
	case g.m.stage == preparing:
		p := prepared(protocol.HostPlan{Host: "h", Tasks: host.tasks}, nil)
		p.Generation = g.generation
		return say(protocol.Message{Prepared: p})
	case g.m.stage == checking:
		return say(protocol.Message{Checked: &protocol.Checked{Generation: g.generation}})
	}
	if g.m.scale.phase == saving && g.rand.Intn(2) == 0 {
		return say(g.holding())
	}
	if g.m.scale.phase == moved && g.rand.Intn(4) == 0 {
		return say(g.steps(h))
	}
	if g.m.save.awaits(g.m.stage) && g.rand.Intn(2) == 0 {
		return say(g.checkpoint(h))
	}
	if g.seed%3 == 1 && !g.tolerates && g.runs(h, cluster.Chief) && g.rand.Intn(2) == 0 { // some games are about losses
		return say(g.tolerating(cluster.Chief, g.generation))
	}
	return say(protocol.Message{Started: &protocol.Started{Generation: g.generation}})
}

func (g *game) missed(h int) map[string]*protocol.TaskState {
	tasks := map[string]*protocol.TaskState{"ps:77": nil}
	for _, t := range g.m.hosts[h].tasks {
		now := &protocol.TaskState{ToleratesLoss: g.seed%3 == 1 && g.rand.Intn(4) == 0}
		if e, ended := g.exits[t.Task]; ended {
			now.Exit = &e
		} else if g.m.stage >= running && g.rand.Intn(4) == 0 {
			e := g.exit(t.Task)
			now.Exit = &e
		}
		if w := g.word(t.Task); g.m.stage >= starting && g.rand.Intn(2) == 0 {
			now.LastProgress = &w
		}
		tasks[t.Task.String()] = now
	}
	return tasks
}

// allGoesWell lets every host answer, every task end and every timer run out,
// over and over. A host that is lost comes back where that may be.
func (g *game) allGoesWell() {
	for range 60 {
		if g.verdict != nil {
			return
		}
		for h := range g.plan.Hosts {
			for range 6 {
				if g.verdict == nil && (!g.m.hosts[h].leaving || g.gone[h]) {
					g.step(g.good(h))
				}
			}
			if g.m.hosts[h].leaving && g.verdict == nil {
				g.step(g.lose(h))
			}
		}
		for _, t := range slices.SortedFunc(maps.Keys(g.tasks), func(a, b cluster.Task) int { return strings.Compare(a.String(), b.String()) }) {
			if h := g.tasks[t]; g.verdict == nil {
				e := protocol.Exit{Task: t, Generation: g.generation, Started: true, StopRequested: g.m.stage == stopping}
				g.step(Heard{Host: h, Message: protocol.Message{Exited: &e}})
			}
		}
		g.ringAll()
	}
}

// allIsLost reports every host as lost for good.
func (g *game) allIsLost() {
	for range 60 {
		if g.verdict != nil {
			return
		}
		for h := range g.plan.Hosts {
			if g.verdict == nil {
				g.step(g.lose(h))
			}
		}
		g.ringAll()
	}
}

// stopped asks for an end that nobody takes part in.
func (g *game) stopped() {
	if g.verdict == nil {
		g.step(StopAsked{Reason: "stopped", Code: 130, SaveTime: time.Duration(g.rand.Intn(2)) * time.Minute})
	}
	g.ringAll()
	g.ringAll()
}

// onlyTimersRun plays no more messages: only timers expire, until every host
// is lost.
func (g *game) onlyTimersRun() {
	for range 60 {
		if g.verdict != nil {
			return
		}
		g.ringAll()
		if g.verdict == nil && g.m.stage == running {
			g.step(g.lose(g.rand.Intn(len(g.plan.Hosts))))
		}
	}
}

func (g *game) ringAll() {
	for range 30 {
		if g.verdict != nil {
			return
		}
		if e, ok := g.ring(); ok {
			g.step(e)
		}
	}
}
