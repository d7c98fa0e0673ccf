package jobstate

import (
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// tolerating is a task's word that the job tolerates the loss of workers.
func (g *game) tolerating(t cluster.Task, generation int) protocol.Message {
	return protocol.Message{TaskReport: &protocol.TaskMessage{Task: t, Generation: generation, Message: cluster.ControlMessage{Kind: cluster.ToleratesLoss}}}
}

// checkpoint is what host h says of one: as a rule its chief's answer.
func (g *game) checkpoint(h int) protocol.Message {
	said := &protocol.TaskMessage{Task: cluster.Chief, Generation: g.of(),
		Message: cluster.ControlMessage{Kind: cluster.Checkpoint, Cause: []string{"", "disk full"}[g.rand.Intn(2)]}}
	said.Message.Step = int64(7 + said.Generation)
	if task, ok := g.task(h); ok && g.rand.Intn(4) == 0 {
		said.Task = task
	}
	return protocol.Message{TaskReport: said}
}

func (g *game) task(h int) (cluster.Task, bool) {
	tasks := g.m.hosts[h].tasks
	if len(tasks) == 0 {
		return cluster.Task{}, false
	}
	return tasks[g.rand.Intn(len(tasks))].Task, true
}

func (g *game) peer() string {
	return []string{"", "worker:0", "worker:1 at h:1", "ps:0", "10.0.0.1:7"}[g.rand.Intn(5)]
}

func (g *game) exit(t cluster.Task) protocol.Exit {
	e := protocol.Exit{Task: t, Generation: g.generation, Started: true, Time: time.Unix(g.rand.Int63n(9), 0)}
	switch g.rand.Intn(12) {
	case 0, 6:
		e.Code, e.LostPeer = 3, g.peer()
	case 1:
		e.Signal, e.Code = 9, 137
	case 2:
		e.Started, e.Code = false, 127
	case 3:
		e.StopRequested = true
	case 4:
		e.Native = true
	case 5:
		e.Native, e.Finished = true, true
	}
	return e
}
