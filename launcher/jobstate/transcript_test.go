package jobstate

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

// print writes commands as they stand in a transcript.
func (p *player) print(commands []Command) {
	for _, c := range commands {
		fmt.Fprintf(&p.out, "  %s\n", p.text(c))
	}
}

func (p *player) text(c Command) string {
	if text, ok := scaleText(planOf(p.m), c); ok {
		return text
	}
	switch c := c.(type) {
	case Send:
		return "to " + p.m.hosts[c.Host].name() + ": " + message(c.Message)
	case SetTimer:
		return fmt.Sprintf("timer %s %s", c.Timer, c.After)
	case Note:
		return "note: " + c.Text
	case Hung:
		return "hung, because of " + c.Hang.Culprit
	case Enter:
		return "enter " + string(c.Phase)
	case Lay:
		var hosts []string
		for _, h := range c.Hosts {
			hosts = append(hosts, h.Host+" "+tasks(h.Tasks))
		}
		return fmt.Sprintf("lay %d: %s", c.Generation, strings.Join(hosts, ", "))
	case Conclude:
		return verdict(c.Verdict)
	}
	return fmt.Sprintf("%#v", c)
}

func tasks(specs []protocol.TaskSpec) string {
	var names []string
	for _, t := range specs {
		names = append(names, t.Task.String())
	}
	return fmt.Sprint(names)
}

func message(m protocol.Message) string {
	switch {
	case m.Prepare != nil && m.Prepare.Generation > 0:
		return fmt.Sprintf("prepare %d, group %d: %s", m.Prepare.Generation, m.Prepare.GroupRank, tasks(m.Prepare.Tasks))
	case m.Prepare != nil:
		return "prepare"
	case m.Checkpoint != nil && m.Checkpoint.Hold != nil:
		return fmt.Sprintf("checkpoint %d, hold for %d workers without %s", m.Checkpoint.Request, m.Checkpoint.Hold.Workers, m.Checkpoint.Hold.Leaving)
	case m.Checkpoint != nil && m.Checkpoint.Resume:
		return "resume"
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
			m.Start.Addresses.Cluster().PS, m.Start.Addresses.Cluster().Worker, m.Start.Addresses.Foreign().PS, m.Start.Addresses.Foreign().Worker)
	case m.Look != nil && m.Look.Waits:
		return fmt.Sprintf("look %d at waits", m.Look.ID)
	case m.Look != nil:
		return fmt.Sprintf("look %d", m.Look.ID)
	case m.Stop != nil && m.Stop.Tasks != nil:
		return fmt.Sprintf("stop %v in %s", m.Stop.Tasks, m.Stop.Grace)
	case m.Stop != nil && m.Stop.Quit:
		return fmt.Sprintf("stop all in %s, with stacks of Go programs", m.Stop.Grace)
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
	if v.Suspended > 0 {
		text += fmt.Sprintf("; suspended for %s", v.Suspended)
	}
	if v.First != nil {
		text += "; first " + v.First.Task.String()
	}
	if v.Hang != nil {
		text += fmt.Sprintf("; hung for %s, culprit %q", v.Hang.After, v.Hang.Culprit)
	}
	if len(v.Victims) > 0 {
		text += "; victims " + strings.Join(v.Victims, ", ")
	}
	byPart := map[protocol.Part][]string{}
	for _, e := range v.Ends {
		byPart[e.Part] = append(byPart[e.Part], e.Task)
	}
	for _, p := range parts {
		if len(byPart[p]) > 0 {
			text += fmt.Sprintf("; %s: %s", p, strings.Join(byPart[p], " "))
		}
	}
	if v.Saved != nil && v.Saved.Cause != "" {
		text += "; not saved: " + v.Saved.Cause
	} else if v.Saved != nil {
		text += fmt.Sprintf("; saved at %d", v.Saved.Step)
	}
	if v.Generation > 0 {
		text += fmt.Sprintf("; generation %d", v.Generation)
	}
	if len(v.Notices) > 0 {
		text += fmt.Sprintf("; %d notices", len(v.Notices))
	}
	return text
}
