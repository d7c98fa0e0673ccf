package depot

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/plx-run/plx/trainer/cluster"
	"golang.org/x/sync/errgroup"
)

// find asks every task whose probes it sees, and so learns who shares a folder.
func (c *chief) find(ctx context.Context) error {
	members := c.all()
	var tokens []string
	for _, m := range members {
		tokens = append(tokens, m.token)
	}
	seen := make([][]string, len(members))
	asking, ctx := errgroup.WithContext(ctx)
	for i, m := range members {
		asking.Go(func() error {
			a, err := c.ask(ctx, m, message{Kind: look, Tokens: tokens}, c.config.Start)
			seen[i] = a.Tokens
			return err
		})
	}
	if err := asking.Wait(); err != nil {
		return err
	}
	c.groups = nil
	for _, group := range grouped(tokens, seen) {
		var tasks []cluster.Task
		for _, i := range group {
			tasks = append(tasks, members[i].task)
		}
		c.groups = append(c.groups, tasks)
	}
	c.say()
	return nil
}

// grouped returns the sets of those whose tokens are seen by one of the set, in
// order; seen is by whom.
func grouped(tokens []string, seen [][]string) (groups [][]int) {
	group := make([]int, len(tokens)) // the smallest index known to be in it
	for i := range group {
		group[i] = i
	}
	for i, list := range seen {
		for j, token := range tokens {
			if !slices.Contains(list, token) {
				continue
			}
			a, b := min(group[i], group[j]), max(group[i], group[j])
			for k := range group {
				if group[k] == b {
					group[k] = a
				}
			}
		}
	}
	at := map[int]int{}
	for i, g := range group {
		if _, ok := at[g]; !ok {
			at[g] = len(groups)
			groups = append(groups, nil)
		}
		groups[at[g]] = append(groups[at[g]], i)
	}
	return groups
}

// say tells the user once how safe checkpoints are.
func (c *chief) say() {
	var hosts []string
	for _, t := range c.tasks {
		if h := c.config.host(t); !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	for _, group := range c.groups {
		var names []string
		for _, t := range group {
			names = append(names, t.String())
		}
		c.config.logf(slog.LevelDebug, "checkpoints: %s share a folder on %s", strings.Join(names, ", "), c.config.host(group[0]))
	}
	switch {
	case len(c.groups) > 1:
	case len(hosts) > 1:
		c.config.logf(slog.LevelInfo, "checkpoints lie in one folder that %d hosts share: there are no second copies", len(hosts))
	default:
		c.config.logf(slog.LevelInfo, "checkpoints lie on %s alone: there is no other host for second copies", hosts[0])
	}
}

// here returns the tasks of each group that are present, without groups of
// which none is. It needs c.mu.
func (c *chief) here() (groups [][]*member) {
	present := c.present()
	for _, tasks := range c.groups {
		var group []*member
		for _, m := range present {
			if slices.Contains(tasks, m.task) {
				group = append(group, m)
			}
		}
		if group != nil {
			groups = append(groups, group)
		}
	}
	return groups
}

// staying returns the groups of here that have a task which does not leave,
// each without those that do. It needs c.mu.
func (c *chief) staying(leaving []cluster.Task) (groups [][]*member) {
	if len(leaving) == 0 {
		return c.here()
	}
	for _, group := range c.here() {
		group = slices.DeleteFunc(group, func(m *member) bool { return slices.Contains(leaving, m.task) })
		if len(group) > 0 {
			groups = append(groups, group)
		}
	}
	return groups
}

// keeper returns the buddy of a task where only the groups of stay will be
// within reach; kept is false where a task that leaves would take the only copy
// along. It needs c.mu.
func (c *chief) keeper(stay [][]*member, of cluster.Task) (to *cluster.Task, kept bool) {
	holds := func(group []*member) bool {
		return slices.ContainsFunc(group, func(m *member) bool { return m.task == of })
	}
	if slices.ContainsFunc(stay, holds) {
		return c.buddy(stay, of), true
	}
	for _, own := range c.here() {
		if !holds(own) {
			continue
		}
		others := [][]*member{own}
		for _, group := range stay {
			if !slices.Contains(own, group[0]) {
				others = append(others, group)
			}
		}
		to = c.buddy(others, of)
		return to, to != nil || len(others) <= len(stay)
	}
	return nil, true // it is not there, which is told of elsewhere
}

// buddy returns who keeps a second copy of what a task writes: the next group,
// of another host where there is one, and in it a task by the task's place in
// its own, so that copies are spread. With one group there is none. Where a copy
// has failed before there is none as long as another group is left.
func (c *chief) buddy(groups [][]*member, of cluster.Task) *cluster.Task {
	place := func(group []*member) int {
		return slices.IndexFunc(group, func(m *member) bool { return m.task == of })
	}
	good := slices.DeleteFunc(slices.Clone(groups), func(group []*member) bool {
		return place(group) < 0 && slices.ContainsFunc(group, func(m *member) bool { return m.failed })
	})
	if len(good) > 1 {
		groups = good
	}
	own := slices.IndexFunc(groups, func(group []*member) bool { return place(group) >= 0 })
	if own < 0 || len(groups) < 2 {
		return nil
	}
	next := groups[(own+1)%len(groups)]
	for i := 1; i < len(groups); i++ {
		if g := groups[(own+i)%len(groups)]; c.config.host(g[0].task) != c.config.host(of) {
			next = g
			break
		}
	}
	return &next[place(groups[own])%len(next)].task
}
