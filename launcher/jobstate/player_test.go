package jobstate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// player plays one transcript.
type player struct {
	plan protocol.Plan
	m    *Machine
	out  strings.Builder
}

// play plays one line: "plan" and "host" describe the job, all others are
// events. What agents say is of the present generation, unless gen= says
// otherwise.
func (p *player) play(words []string) error {
	verb, rest := words[0], words[1:]
	switch verb {
	case "plan":
		return p.describe(parse(rest))
	case "host":
		return p.host(rest)
	}
	if p.m == nil {
		p.m = New(p.plan)
	}
	switch verb {
	case "begin":
		p.print(p.m.Begin())
	case "running":
		p.run()
	case "begun":
		p.begun()
	case "stop":
		o := parse(rest)
		p.print(p.m.Step(StopAsked{Reason: o["reason"], Code: o.number("code"), Grace: o.duration("grace"), SaveTime: o.duration("save")}))
	case "suspended":
		p.print(p.m.Step(Suspended{For: parse(rest).duration("for")}))
	case "elapsed":
		p.print(p.m.Step(Elapsed{Timer: Timer(strings.Join(rest, " "))}))
	case "scale":
		return p.scale(rest)
	case "held":
		p.held(parse(rest))
	case "exit", "said", "checkpoint":
		return p.task(verb, rest)
	default:
		return p.agent(verb, rest)
	}
	return nil
}

func (p *player) describe(o options) error {
	r := &p.plan.Restarts
	for key, d := range map[string]*time.Duration{"grace": &p.plan.Grace, "settle": &p.plan.Settle, "start-timeout": &p.plan.StartTimeout,
		"max-time": &p.plan.MaxTime, "lease": &p.plan.Lease, "wait-host": &r.WaitHost, "hang": &p.plan.Hang.Timeout, "backoff": &r.Backoff} {
		if o[key] != "" {
			*d = o.duration(key)
		}
	}
	for key, n := range map[string]*int{"restarts": &r.Max, "per-hour": &r.PerHour, "min-workers": &r.MinWorkers} {
		if o[key] != "" {
			*n = o.number(key)
		}
	}
	p.plan.Hang.Action = o["on-hang"]
	r.Revive = r.Revive || o["revive"] != ""
	p.plan.Foreign = o["foreign"] != ""
	return nil
}

func (p *player) host(words []string) error {
	h := protocol.HostPlan{Host: words[0]}
	for _, w := range words[1:] {
		if w == "seat" {
			h.Drives = true
			continue
		}
		t, err := cluster.ParseTask(w)
		if err != nil {
			return err
		}
		spec := protocol.TaskSpec{Task: t}
		if t.Role == cluster.Worker {
			spec.LocalRank = protocol.Workers(h.Tasks)
			spec.Devices = fmt.Sprint(spec.LocalRank)
		}
		h.Tasks = append(h.Tasks, spec)
	}
	p.plan.Hosts = append(p.plan.Hosts, h)
	return nil
}

// run plays the start of a job without printing it.
func (p *player) run() {
	kept := p.out.String()
	p.m.Begin()
	for _, verb := range []string{"up", "prepared", "checked", "started"} {
		if err := p.agent(verb, []string{"*"}); err != nil {
			panic(err)
		}
	}
	p.out.Reset()
	p.out.WriteString(kept)
}

// begun plays the start of a generation after the first without printing it.
func (p *player) begun() {
	kept := p.out.String()
	for _, verb := range []string{"prepared", "checked", "started"} {
		for i, h := range p.plan.Hosts {
			if !p.m.hosts[i].participates {
				continue
			}
			if err := p.agent(verb, []string{h.Host}); err != nil {
				panic(err)
			}
		}
	}
	p.out.Reset()
	p.out.WriteString(kept)
}

// task plays an event of one task: its exit, or what it said of its steps, of its
// failure or of a checkpoint.
func (p *player) task(verb string, words []string) error {
	t, err := cluster.ParseTask(words[0])
	if err != nil {
		return err
	}
	o := parse(words[1:])
	host, known := p.m.generation.hostOf[t]
	if !known {
		return fmt.Errorf("no such task")
	}
	if o["from"] != "" {
		host = slices.IndexFunc(p.plan.Hosts, func(h protocol.HostPlan) bool { return h.Host == o["from"] })
	}
	if verb != "exit" {
		said := protocol.TaskMessage{Task: t, Generation: p.generation(o), Message: word(verb, o)}
		p.print(p.m.Step(Heard{Host: host, Message: protocol.Message{TaskReport: &said}}))
		return nil
	}
	e := exitOf(t, o)
	e.Generation = p.generation(o)
	p.print(p.m.Step(Heard{Host: host, Message: protocol.Message{Exited: &e}}))
	return nil
}

// word is what a task says to its agent.
func word(verb string, o options) cluster.ControlMessage {
	step := int64(o.number("step"))
	switch {
	case verb == "checkpoint":
		return cluster.ControlMessage{Kind: cluster.Checkpoint, Step: step, Cause: o["cause"]}
	case o["tolerates"] != "":
		return cluster.ControlMessage{Kind: cluster.ToleratesLoss}
	}
	m := cluster.ControlMessage{Kind: cluster.Failed, Cause: o["cause"], Peer: o["lost"],
		Step: step, From: int64(o.number("behind"))}
	switch {
	case o["done"] != "":
		m.Kind = cluster.Finished
	case o["step"] != "" && m.Cause == "":
		m.Kind = cluster.Heartbeat
	}
	return m
}

func (p *player) generation(o options) int {
	if o["gen"] != "" {
		return o.number("gen")
	}
	return p.m.generation.number
}

func exitOf(t cluster.Task, o options) protocol.Exit {
	return protocol.Exit{
		Task: t, Code: o.number("code"), Signal: o.number("signal"), Started: o["unstarted"] == "",
		Native: o["native"] != "", Finished: o["finished"] != "", StopRequested: o["told"] != "",
		Cause: o["cause"], LostPeer: o["lost"], Time: time.Unix(int64(o.number("at")), 0),
	}
}

// agent plays an event of one host, or of each.
func (p *player) agent(verb string, words []string) error {
	for i, h := range p.plan.Hosts {
		if words[0] == h.Host || words[0] == "*" {
			e, err := p.event(verb, i, h, words[1:])
			if err != nil {
				return err
			}
			p.print(p.m.Step(e))
		}
	}
	return nil
}

func (p *player) event(verb string, i int, h protocol.HostPlan, words []string) (Event, error) {
	o := parse(words)
	h.Tasks = p.m.hosts[i].tasks
	generation := p.generation(o)
	say := func(m protocol.Message) (Event, error) { return Heard{Host: i, Message: m}, nil }
	switch verb {
	case "up":
		state, err := state(h, generation, words)
		return Up{Host: i, State: state}, err
	case "silent":
		return Silent{Host: i, Cause: o["cause"]}, nil
	case "lost":
		return Lost{Host: i, Cause: o["cause"], Clear: o.duration("clear"), Answers: o["answers"] != ""}, nil
	case "prepared":
		prepared := prepared(h, o)
		prepared.Generation = generation
		return say(protocol.Message{Prepared: prepared})
	case "checked":
		c := &protocol.Checked{Generation: generation}
		for _, name := range strings.Split(o["unreached"], ",") {
			if i := slices.IndexFunc(p.plan.Hosts, func(h protocol.HostPlan) bool { return h.Host == name }); name != "" {
				c.Failures = append(c.Failures, protocol.Unreached{Peer: protocol.Peer{Index: i, Host: name, Addr: o["addr"]}, Cause: o["cause"]})
			}
		}
		return say(protocol.Message{Checked: c})
	case "started":
		return say(protocol.Message{Started: &protocol.Started{Generation: generation}})
	case "asks-stop":
		return say(protocol.Message{StopAsk: &protocol.Stop{Grace: o.duration("grace"), Reason: o["reason"], Code: o.number("code"), SaveTime: o.duration("save")}})
	case "seen":
		return say(p.seen(h, generation, o))
	case "notice":
		return say(protocol.Message{Notice: o["text"]})
	}
	return nil, fmt.Errorf("unknown event %s", verb)
}

// prepared gives task k of a host the ports 1000+k and 2000+k.
func prepared(h protocol.HostPlan, o options) *protocol.Prepared {
	if o["error"] != "" {
		return &protocol.Prepared{Error: o["error"]}
	}
	p := &protocol.Prepared{Open: map[cluster.Task]string{}, Reserved: map[cluster.Task]string{}}
	for k, t := range h.Tasks {
		p.Open[t.Task], p.Reserved[t.Task] = fmt.Sprintf("%s:%d", h.Host, 1000+k), fmt.Sprintf("%s:%d", h.Host, 2000+k)
	}
	if t, err := cluster.ParseTask(o["also"]); err == nil {
		p.Open[t] = h.Host + ":3000"
	}
	if t, err := cluster.ParseTask(o["without"]); err == nil {
		delete(p.Open, t)
	}
	return p
}

// state is that of an agent; after each "missed" follows what it says of a task.
func state(h protocol.HostPlan, generation int, words []string) (protocol.State, error) {
	s := protocol.State{Addr: h.Host + ":99", Generation: generation, Tasks: map[string]*protocol.TaskState{}}
	parts := strings.Split(strings.Join(words, " "), "missed ")
	about := parse(split(strings.TrimSpace(parts[0])))
	s.Phase = protocol.Phase(about["phase"])
	if about["tolerates"] != "" {
		s.Tasks[cluster.Chief.String()] = &protocol.TaskState{ToleratesLoss: true}
	}
	for _, part := range parts[1:] {
		w := split(strings.TrimSpace(part))
		t, err := cluster.ParseTask(w[0])
		if err != nil {
			return s, err
		}
		s.Tasks[t.String()] = missing(t, generation, parse(w[1:]))
	}
	return s, nil
}

// missing is what a state says of a task: that it failed and still runs, said something of its
// steps, or has ended, after such a word where one is given.
func missing(t cluster.Task, generation int, o options) *protocol.TaskState {
	said, now := word("said", o), &protocol.TaskState{}
	if o["step"] != "" {
		now.LastProgress = &said
	}
	if o["failed"] != "" {
		now.Failed = &said
	} else if o["runs"] == "" {
		e := exitOf(t, o)
		e.Generation = generation
		now.Exit = &e
	}
	return now
}
