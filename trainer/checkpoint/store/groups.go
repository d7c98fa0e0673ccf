package store

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/plx-run/plx/trainer/cluster"
	"golang.org/x/sync/errgroup"
)

// find asks every task whose probes it sees, and so learns which tasks share a
// folder.
func (r *roster) find(ctx context.Context) error {
	members := r.all()
	var tokens []string
	for _, m := range members {
		tokens = append(tokens, m.token)
	}
	seen := make([][]string, len(members))
	asking, ctx := errgroup.WithContext(ctx)
	for i, m := range members {
		asking.Go(func() error {
			a, err := r.ask(ctx, m, message{Kind: look, Tokens: tokens}, r.config.Start)
			seen[i] = a.Tokens
			return err
		})
	}
	if err := asking.Wait(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.groups = nil
	for _, group := range grouped(tokens, seen) {
		var tasks []cluster.Task
		for _, i := range group {
			tasks = append(tasks, members[i].task)
		}
		r.groups = append(r.groups, tasks)
	}
	r.report(r.groups)
	return nil
}

// grouped returns the sets of tasks whose folders are one, in order: two tasks
// are in one set if one of them sees the other's token. seen is by task.
func grouped(tokens []string, seen [][]string) (groups [][]int) {
	group := make([]int, len(tokens)) // by task: the smallest index known to be in its set
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

// report logs once how safe checkpoints are.
func (r *roster) report(groups [][]cluster.Task) {
	var hosts []string
	for _, t := range r.tasks {
		if h := r.config.host(t); !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	for _, group := range groups {
		var names []string
		for _, t := range group {
			names = append(names, t.String())
		}
		r.config.logf(slog.LevelDebug, "checkpoints: %s share a folder on %s", strings.Join(names, ", "), r.config.host(group[0]))
	}
	switch {
	case len(groups) > 1:
	case len(hosts) > 1:
		r.config.logf(slog.LevelInfo, "checkpoints lie in one folder that %d hosts share: there are no second copies", len(hosts))
	default:
		r.config.logf(slog.LevelInfo, "checkpoints lie on %s alone: there is no other host for second copies", hosts[0])
	}
}

// here returns the tasks of each group that are present, without empty groups.
func (r *roster) here() (groups [][]*member) {
	present := r.present()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, tasks := range r.groups {
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
