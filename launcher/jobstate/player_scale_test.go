package jobstate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// scale plays "scale ID by=HOST leave=h2,h3 join=h4:2,h5:1": a visitor of a host
// wants hosts to leave, and others to join with so many workers.
func (p *player) scale(words []string) error {
	o := parse(words[1:])
	s := protocol.Scale{ID: words[0], Known: len(p.m.hosts), SaveTime: time.Minute}
	if o["query"] != "" {
		s.Known = 0
	}
	if o["known"] != "" {
		s.Known = o.number("known")
	}
	for _, name := range strings.FieldsFunc(o["leave"], func(r rune) bool { return r == ',' }) {
		s.Leave = append(s.Leave, p.index(name))
	}
	for _, text := range strings.FieldsFunc(o["join"], func(r rune) bool { return r == ',' }) {
		name, workers, _ := strings.Cut(text, ":")
		h := protocol.HostPlan{Host: name, Folder: name}
		for rank := range (options{"n": workers}).number("n") {
			h.Tasks = append(h.Tasks, protocol.TaskSpec{Task: cluster.Task{Role: cluster.Worker, Index: rank}, LocalRank: rank, Devices: fmt.Sprint(rank)})
		}
		s.Join = append(s.Join, protocol.Joining{HostPlan: h})
	}
	p.print(p.m.Step(Heard{Host: max(p.index(o["by"]), 0), Message: protocol.Message{Scale: &s}}))
	p.plan.Hosts = planOf(p.m)
	return nil
}

func (p *player) index(name string) int {
	last := -1
	for i, h := range p.m.hosts {
		if h.name() == name {
			last = i
		}
	}
	return last
}

// held plays the chief's word that it holds the job.
func (p *player) held(o options) {
	said := protocol.TaskMessage{Task: cluster.Chief, Generation: p.generation(o), Message: cluster.ControlMessage{Kind: cluster.Checkpoint,
		Request: o.number("request"), Hold: o["cause"] == "", Step: int64(o.number("step")), Cause: o["cause"], Held: o.duration("for")}}
	p.print(p.m.Step(Heard{Host: p.m.generation.hostOf[cluster.Chief], Message: protocol.Message{TaskReport: &said}}))
}

// scaleText is a command of a change of hosts in words.
func scaleText(hosts []protocol.HostPlan, c Command) (string, bool) {
	switch c := c.(type) {
	case Join:
		return fmt.Sprintf("join %d %s with %d", c.Host, c.Joining.Host, len(c.Joining.Tasks)), true
	case Leave:
		return "leave " + hosts[c.Host].Host, true
	case Holding:
		return fmt.Sprintf("holding for %s", c.For), true
	case Answer:
		s := c.Scaled
		var names []string
		for _, h := range s.Hosts {
			if !h.Left {
				names = append(names, h.Host)
			}
		}
		slices.Sort(names)
		return fmt.Sprintf("answer %s %s cause=%q from=%d to=%d step=%d hosts=%s", hosts[c.Host].Host, s.ID, s.Cause, s.From, s.To, s.Step, strings.Join(names, ",")), true
	}
	return "", false
}

// planOf is what the machine knows of its hosts from the plan and from changes.
func planOf(m *Machine) (all []protocol.HostPlan) {
	for _, h := range m.hosts {
		all = append(all, h.plan)
	}
	return all
}
