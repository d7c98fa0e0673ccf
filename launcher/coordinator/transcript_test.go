package coordinator

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

var update = flag.Bool("update", false, "write what the machine says now into the transcripts")

// TestTranscripts plays the files of testdata. In each, lines that stand at
// the margin are events, indented ones the commands that must follow; see
// player.play for the words. "*" for a host means every host in turn, and
// "running" is a whole start whose commands are left out.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(want))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got != string(want) {
				t.Errorf("%s:\n%s", file, firstDifference(got, string(want)))
			}
		})
	}
}

func replay(t *testing.T, text string) string {
	p := &player{plan: protocol.Plan{Job: "j", Grace: 10 * time.Second, Settle: time.Second, StartTimeout: 5 * time.Minute}}
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if strings.HasPrefix(line, "  ") {
			continue
		}
		fmt.Fprintln(&p.out, line)
		if line == "" || line[0] == '#' {
			continue
		}
		if err := p.play(split(line)); err != nil {
			t.Fatalf("line %d: %s: %v", n+1, line, err)
		}
	}
	return p.out.String()
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			return fmt.Sprintf("line %d\ngot  %q\nwant %q", i+1, g[i], strings.Join(w[i:min(i+1, len(w))], ""))
		}
	}
	return fmt.Sprintf("ends before line %d: %q", len(g), w[len(g)])
}

// split cuts a line at spaces; a value in quotes may hold some.
func split(line string) []string {
	var words []string
	quoted := false
	for _, w := range strings.Split(line, " ") {
		if quoted {
			words[len(words)-1] += " " + w
		} else {
			words = append(words, w)
		}
		if strings.Count(w, `"`)%2 == 1 {
			quoted = !quoted
		}
	}
	return words
}

// options are the key=value words of an event, and bare ones as key=true.
type options map[string]string

func parse(words []string) options {
	o := options{}
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			value = "true"
		}
		if text, err := strconv.Unquote(value); err == nil {
			value = text
		}
		o[key] = value
	}
	return o
}

func (o options) number(key string) int {
	n, err := strconv.Atoi(o[key])
	if err != nil && o[key] != "" {
		panic(key + "=" + o[key])
	}
	return n
}

func (o options) duration(key string) time.Duration {
	d, err := time.ParseDuration(o[key])
	if err != nil && o[key] != "" {
		panic(key + "=" + o[key])
	}
	return d
}

// player plays one transcript.
type player struct {
	plan protocol.Plan
	m    *Machine
	out  strings.Builder
}

// play plays one line: "plan" and "host" describe the job, all others are
// events.
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
	case "stop":
		o := parse(rest)
		p.print(p.m.Step(StopAsked{Reason: o["reason"], Code: o.number("code"), Grace: o.duration("grace"), SaveTime: o.duration("save")}))
	case "elapsed":
		p.print(p.m.Step(Elapsed{Timer: Timer(rest[0])}))
	case "exit", "said", "checkpoint":
		return p.task(verb, rest)
	default:
		return p.agent(verb, rest)
	}
	return nil
}

func (p *player) describe(o options) error {
	for key, d := range map[string]*time.Duration{"grace": &p.plan.Grace, "settle": &p.plan.Settle, "start-timeout": &p.plan.StartTimeout, "max-time": &p.plan.MaxTime} {
		if o[key] != "" {
			*d = o.duration(key)
		}
	}
	return nil
}

func (p *player) host(words []string) error {
	h := protocol.HostPlan{Host: words[0]}
	for _, w := range words[1:] {
		t, err := cluster.ParseTask(w)
		if err != nil {
			return err
		}
		h.Tasks = append(h.Tasks, t)
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

// task plays an event of one task: its exit, or what it said of its failure or
// of a checkpoint.
func (p *player) task(verb string, words []string) error {
	t, err := cluster.ParseTask(words[0])
	if err != nil {
		return err
	}
	o := parse(words[1:])
	host, known := p.m.hostOf[t]
	if !known {
		return fmt.Errorf("no such task")
	}
	if verb == "checkpoint" {
		said := protocol.Said{Task: t, Message: cluster.ControlMessage{Kind: cluster.Checkpoint, Step: int64(o.number("step")), Cause: o["cause"]}}
		p.print(p.m.Step(Heard{Host: host, Message: protocol.Message{Said: &said}}))
		return nil
	}
	if verb == "said" {
		said := protocol.Said{Task: t, Message: cluster.ControlMessage{Kind: cluster.Failed, Cause: o["cause"], Peer: o["lost"]}}
		p.print(p.m.Step(Heard{Host: host, Message: protocol.Message{Said: &said}}))
		return nil
	}
	e := exit(t, o)
	p.print(p.m.Step(Heard{Host: host, Message: protocol.Message{Exited: &e}}))
	return nil
}

func exit(t cluster.Task, o options) protocol.Exit {
	return protocol.Exit{
		Task: t, Code: o.number("code"), Signal: o.number("signal"), Started: o["unstarted"] == "",
		Native: o["native"] != "", Finished: o["finished"] != "", Told: o["told"] != "",
		Cause: o["cause"], LostPeer: o["lost"], Time: time.Unix(int64(o.number("at")), 0),
	}
}

// agent plays an event of one host, or of each.
func (p *player) agent(verb string, words []string) error {
	for i, h := range p.plan.Hosts {
		if words[0] == h.Host || words[0] == "*" {
			e, err := event(verb, i, h, words[1:])
			if err != nil {
				return err
			}
			p.print(p.m.Step(e))
		}
	}
	return nil
}

func event(verb string, i int, h protocol.HostPlan, words []string) (Event, error) {
	o := parse(words)
	say := func(m protocol.Message) (Event, error) { return Heard{Host: i, Message: m}, nil }
	switch verb {
	case "up":
		state, err := state(h, words)
		return Up{Host: i, State: state}, err
	case "silent":
		return Silent{Host: i, Cause: o["cause"]}, nil
	case "lost":
		return Lost{Host: i, Cause: o["cause"]}, nil
	case "prepared":
		return say(protocol.Message{Prepared: prepared(h, o)})
	case "checked":
		c := &protocol.Checked{}
		if o["unreached"] != "" {
			c.Failures = []protocol.Unreached{{Peer: protocol.Peer{Host: o["unreached"], Addr: o["addr"]}, Cause: o["cause"]}}
		}
		return say(protocol.Message{Checked: c})
	case "started":
		return say(protocol.Message{Started: &protocol.Started{}})
	case "asks-stop":
		return say(protocol.Message{StopAsk: &protocol.Stop{Grace: o.duration("grace"), Reason: o["reason"], Code: o.number("code"), SaveTime: o.duration("save")}})
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
		p.Open[t], p.Reserved[t] = fmt.Sprintf("%s:%d", h.Host, 1000+k), fmt.Sprintf("%s:%d", h.Host, 2000+k)
	}
	if t, err := cluster.ParseTask(o["also"]); err == nil {
		p.Open[t] = h.Host + ":3000"
	}
	if t, err := cluster.ParseTask(o["without"]); err == nil {
		delete(p.Open, t)
	}
	return p
}

// state is that of an agent; after each "missed" follows an exit of a task.
func state(h protocol.HostPlan, words []string) (protocol.State, error) {
	s := protocol.State{Addr: h.Host + ":99", Tasks: map[string]*protocol.TaskNow{}}
	parts := strings.Split(strings.Join(words, " "), "missed ")
	s.Phase = protocol.Phase(parse(split(strings.TrimSpace(parts[0])))["phase"])
	for _, part := range parts[1:] {
		w := split(strings.TrimSpace(part))
		t, err := cluster.ParseTask(w[0])
		if err != nil {
			return s, err
		}
		e := exit(t, parse(w[1:]))
		s.Tasks[t.String()] = &protocol.TaskNow{Exit: &e}
	}
	return s, nil
}

// print writes commands as they stand in a transcript.
func (p *player) print(commands []Command) {
	for _, c := range commands {
		fmt.Fprintf(&p.out, "  %s\n", p.text(c))
	}
}

func (p *player) text(c Command) string {
	switch c := c.(type) {
	case Send:
		return "to " + p.plan.Hosts[c.Host].Host + ": " + message(c.Message)
	case SetTimer:
		return fmt.Sprintf("timer %s %s", c.Timer, c.After)
	case Note:
		return "note: " + c.Text
	case Enter:
		return "enter " + string(c.Phase)
	case Conclude:
		return verdict(c.Verdict)
	}
	return fmt.Sprintf("%#v", c)
}

func message(m protocol.Message) string {
	switch {
	case m.Prepare != nil:
		return "prepare"
	case m.Checkpoint != nil:
		return "checkpoint"
	case m.Check != nil:
		var peers []string
		for _, p := range m.Check.Peers {
			peers = append(peers, fmt.Sprintf("%d %s %s", p.Index, p.Host, p.Addr))
		}
		return "check " + strings.Join(peers, ", ")
	case m.Start != nil:
		return fmt.Sprintf("start ps %v, worker %v; for others ps %v, worker %v",
			m.Start.Cluster.PS, m.Start.Cluster.Worker, m.Start.Foreign.PS, m.Start.Foreign.Worker)
	case m.Stop != nil && m.Stop.Tasks != nil:
		return fmt.Sprintf("stop %v in %s", m.Stop.Tasks, m.Stop.Grace)
	case m.Stop != nil:
		return fmt.Sprintf("stop all in %s", m.Stop.Grace)
	}
	return fmt.Sprintf("%+v", m)
}

func verdict(v protocol.Verdict) string {
	text := fmt.Sprintf("conclude %d: %s", v.Code, v.Reason)
	if v.Host != "" {
		text += "; host " + v.Host
	}
	if v.First != nil {
		text += "; first " + v.First.Task.String()
	}
	if len(v.Victims) > 0 {
		text += "; victims " + strings.Join(v.Victims, ", ")
	}
	if v.Saved != nil && v.Saved.Cause != "" {
		text += "; not saved: " + v.Saved.Cause
	} else if v.Saved != nil {
		text += fmt.Sprintf("; saved at %d", v.Saved.Step)
	}
	if len(v.Notices) > 0 {
		text += fmt.Sprintf("; %d notices", len(v.Notices))
	}
	return text
}
