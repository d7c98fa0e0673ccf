package jobstate

import (
	"cmp"
	"slices"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// missed turns the state of an agent that has just connected into the messages
// that it may have sent without a connection: what the chief tolerates, steps,
// exits, failures that are no exits yet.
func missed(s protocol.State) []protocol.Message {
	var all []protocol.Message
	said := func(t cluster.Task, m cluster.ControlMessage) {
		all = append(all, protocol.Message{Said: &protocol.Said{Task: t, Generation: s.Generation, Message: m}})
	}
	tasks := tasksOf(s)
	if now := s.Tasks[cluster.Chief.String()]; now != nil && now.ToleratesLoss {
		said(cluster.Chief, cluster.ControlMessage{Kind: cluster.ToleratesLoss})
	}
	for _, t := range tasks {
		if t.now.Word != nil {
			word := *t.now.Word
			if word.Kind == cluster.Failed {
				word.Kind = cluster.Finished // the failure itself comes below, or its exit does
			}
			said(t.task, word)
		}
	}
	for _, e := range exitsOf(s) {
		all = append(all, protocol.Message{Exited: &e})
	}
	for _, t := range tasks {
		if t.now.Exit == nil && t.now.Failed != nil {
			said(t.task, *t.now.Failed)
		}
	}
	return all
}

// taskNow is a task with its state.
type taskNow struct {
	task cluster.Task
	now  *protocol.TaskNow
}

// tasksOf returns the tasks of a state in order.
func tasksOf(s protocol.State) []taskNow {
	var tasks []taskNow
	for name, now := range s.Tasks {
		if t, err := cluster.ParseTask(name); err == nil && now != nil {
			tasks = append(tasks, taskNow{t, now})
		}
	}
	slices.SortFunc(tasks, func(a, b taskNow) int { return compare(a.task, b.task) })
	return tasks
}

// exitsOf returns the exits in a state in the order in which they happened, so
// that the first failure is blamed.
func exitsOf(s protocol.State) []protocol.Exit {
	var exits []protocol.Exit
	for _, now := range s.Tasks {
		if now != nil && now.Exit != nil {
			exits = append(exits, *now.Exit)
		}
	}
	slices.SortFunc(exits, func(a, b protocol.Exit) int {
		return cmp.Or(a.Time.Compare(b.Time), compare(a.Task, b.Task))
	})
	return exits
}

func compare(a, b cluster.Task) int {
	return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Index, b.Index))
}
