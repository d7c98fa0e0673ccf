package jobstate

import (
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// seen is an answer of an agent about all tasks of its host: how long they have been still
// and quiet, and what their first threads wait for.
func (p *player) seen(h protocol.HostPlan, generation int, o options) protocol.Message {
	s := &protocol.ActivityReport{ID: p.m.watch.Round(), Generation: generation, Tasks: map[cluster.Task]*protocol.Activity{}}
	if o["id"] != "" {
		s.ID = o.number("id")
	}
	for _, t := range h.Tasks {
		a := &protocol.Activity{PID: 100, Idle: o.duration("still"), IOIdle: o.duration("still")}
		if o["quiet"] != "" {
			a.IOIdle = o.duration("quiet")
		}
		if o["waits"] != "" {
			a.Processes = []protocol.Process{{PID: 100, Name: "train", Threads: []protocol.Thread{{Wait: protocol.Wait(o["waits"]), Count: 1}}}}
		}
		s.Tasks[t.Task] = a
	}
	return protocol.Message{Seen: s}
}
