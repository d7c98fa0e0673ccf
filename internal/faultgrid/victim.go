package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/internal/testhosts"
)

// The hosts: the chief's, the other worker's, and one that has a server alone.
// The others have a server too.
var resources = []string{"h1: cpu", "h2: cpu", "h3: ps"}

// The same hosts where workers do not wait for each other: the job can do
// without the second, which has a worker and nothing else. The third has both.
var (
	looseResources = []string{"h1: cpu", "h2: cpu", "h3: cpu"}
	looseServers   = "h1,h3"
)

// task is the victim's name as a task, "" for those that are none.
func (c Cell) task() string {
	if c.loose() && c.Victim == server {
		return "ps:1"
	}
	return c.Victim.task()
}

// task is the victim's name where all workers wait for each other.
func (v victim) task() string {
	switch v {
	case chief, scaledChief:
		return "worker:0"
	case worker, stray, scaledWorker:
		return "worker:1"
	case server:
		return "ps:2"
	}
	return ""
}

// host is the index of the victim's host, -1 for a launcher.
func (v victim) host() int {
	switch v {
	case chief, seat, scaledChief:
		return 0
	case worker, stray, supervisor, guardian, agent, scaledWorker:
		return 1
	case server, joining:
		return 2
	}
	return -1
}

// runs says that a process of the victim's host is the victim, or a part of it.
func (c Cell) runs(p testhosts.Process) bool {
	if task := c.task(); task != "" {
		role, index, _ := strings.Cut(task, ":")
		return slices.Contains(p.Environ, "PLX_ROLE="+role) && slices.Contains(p.Environ, "PLX_TASK_INDEX="+index)
	}
	command := strings.Join(p.Args, " ")
	return c.Victim != guardian && strings.Contains(command, "plx agent supervisor") ||
		c.Victim != supervisor && strings.Contains(command, "plx agent guardian")
}

// processes are those of a victim that is not the launcher.
func (c Cell) processes(h *testhosts.Host) ([]testhosts.Process, error) {
	all, err := h.Processes()
	if err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(all, func(p testhosts.Process) bool { return !c.runs(p) })
	want := 1
	if c.Victim == agent || c.Victim == seat {
		want = 2
	}
	if len(found) != want {
		return nil, fmt.Errorf("host %s: %d processes are the %s, not %d: %v", h.Name, len(found), c.Victim, want, found)
	}
	return found, nil
}

// until waits for a condition, ten seconds at most.
func until(ctx context.Context, what string, met func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		if ok, err := met(); ok || err != nil {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("not in time: %s", what)
		}
	}
}

// inState waits until processes are in a state, or gone where state is 'X'; a
// zombie is as good as gone.
func inState(ctx context.Context, h *testhosts.Host, ps []testhosts.Process, state byte) error {
	return until(ctx, fmt.Sprintf("%v in state %c", ps, state), func() (bool, error) {
		now, err := h.Processes()
		if err != nil {
			return false, err
		}
		for _, p := range ps {
			i := slices.IndexFunc(now, func(q testhosts.Process) bool { return q.OuterPID == p.OuterPID })
			is := byte('X')
			if i >= 0 && now[i].State != 'Z' {
				is = now[i].State
			}
			if is != state {
				return false, nil
			}
		}
		return true, nil
	})
}
