package store

import (
	"slices"

	"github.com/plx-run/plx/trainer/cluster"
)

// copyPlan says who keeps the second copy of what a task writes in a save.
type copyPlan struct {
	host func(cluster.Task) string
	here [][]*member // tasks that are present, by folder
	stay [][]*member // of these, the tasks that do not leave after the save
}

// newCopyPlan plans for a save after which some tasks' folders are out of
// reach.
func newCopyPlan(r *roster, leaving []cluster.Task) copyPlan {
	p := copyPlan{host: r.config.host, here: r.here()}
	if len(leaving) == 0 {
		p.stay = p.here
		return p
	}
	for _, group := range p.here {
		group = slices.DeleteFunc(slices.Clone(group), func(m *member) bool { return slices.Contains(leaving, m.task) })
		if len(group) > 0 {
			p.stay = append(p.stay, group)
		}
	}
	return p
}

// keeper returns the buddy of a task: who keeps the second copy of what it
// writes, nil for nobody. kept is false if the task leaves and no other task can
// keep its only copy.
func (p copyPlan) keeper(of cluster.Task) (buddy *cluster.Task, kept bool) {
	holds := func(group []*member) bool { return place(group, of) >= 0 }
	if slices.ContainsFunc(p.stay, holds) {
		return p.buddy(p.stay, of), true
	}
	for _, own := range p.here {
		if !holds(own) {
			continue
		}
		others := [][]*member{own}
		for _, group := range p.stay {
			if !slices.Contains(own, group[0]) {
				others = append(others, group)
			}
		}
		buddy = p.buddy(others, of)
		return buddy, buddy != nil || len(others) <= len(p.stay)
	}
	return nil, true // it is not there, which fails the save
}

// place is a task's place in a group; negative: it is not in it.
func place(group []*member, of cluster.Task) int {
	return slices.IndexFunc(group, func(m *member) bool { return m.task == of })
}

// buddy takes the next group, of another host if there is one. In that group it
// takes a task by the task's place in its own group, so that copies are spread.
// With one group there is none. A group in which a copy has failed before has
// no part as long as another is left.
func (p copyPlan) buddy(groups [][]*member, of cluster.Task) *cluster.Task {
	good := slices.DeleteFunc(slices.Clone(groups), func(group []*member) bool {
		return place(group, of) < 0 && slices.ContainsFunc(group, func(m *member) bool { return m.failed.Load() })
	})
	if len(good) > 1 {
		groups = good
	}
	own := slices.IndexFunc(groups, func(group []*member) bool { return place(group, of) >= 0 })
	if own < 0 || len(groups) < 2 {
		return nil
	}
	next := groups[(own+1)%len(groups)]
	for i := 1; i < len(groups); i++ {
		if g := groups[(own+i)%len(groups)]; p.host(g[0].task) != p.host(of) {
			next = g
			break
		}
	}
	return &next[place(groups[own], of)%len(next)].task
}
