package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// roster is the chief's list of tasks: who is there, what each task's folder
// holds, and which folders are one. Any goroutine may call its methods.
type roster struct {
	config Config
	tasks  []cluster.Task

	mu      sync.Mutex
	members map[cluster.Task]*member // tasks that have come
	groups  [][]cluster.Task         // tasks whose folders are one folder
	decided bool                     // the chief has chosen what to resume from
	fresh   bool                     // which is nothing
	changed chan struct{}            // a token: a task has come or gone
}

func newRoster(c Config) *roster {
	return &roster{config: c, tasks: c.tasks(), members: map[cluster.Task]*member{}, changed: make(chan struct{}, 1)}
}

// enter lets a task in that says hello.
func (r *roster) enter(t cluster.Task, m message) (*member, error) {
	if m.Kind != hello || m.Token == "" {
		return nil, fmt.Errorf("unexpected %q message, want hello", m.Kind)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.tasks, t) || r.members[t] != nil {
		return nil, errors.New("it is no task of this job, or it was here before")
	}
	from := newMember(t, m)
	r.members[t] = from
	r.note()
	return from, nil
}

// note wakes assemble.
func (r *roster) note() {
	select {
	case r.changed <- struct{}{}:
	default: // a token is there already
	}
}

// assemble returns once all tasks are there.
func (r *roster) assemble(ctx context.Context) error {
	for missing := r.missing(); len(missing) > 0; missing = r.missing() {
		select {
		case <-r.changed:
			if err := r.anyLost(); err != nil {
				return err
			}
		case <-ctx.Done():
			return r.config.blame(missing[0], fmt.Errorf("%w: no sign of %v", context.Cause(ctx), missing))
		}
	}
	return nil
}

func (r *roster) missing() (tasks []cluster.Task) {
	for _, t := range r.tasks {
		if r.member(t) == nil {
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// anyLost is the error of a task that was lost.
func (r *roster) anyLost() error {
	for _, m := range r.all() {
		if m.lost() && m.gone.err != nil {
			return m.gone.err
		}
	}
	return nil
}

// member returns a task; nil: it has not come.
func (r *roster) member(t cluster.Task) *member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members[t]
}

// all returns the tasks that have come, in order.
func (r *roster) all() (all []*member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tasks {
		if m := r.members[t]; m != nil {
			all = append(all, m)
		}
	}
	return all
}

// present returns the tasks that are there, in order.
func (r *roster) present() []*member {
	return slices.DeleteFunc(r.all(), func(m *member) bool { return !m.present() })
}

// tell posts a message to all tasks that are there.
func (r *roster) tell(m message) {
	for _, to := range r.present() {
		to.out.post(m)
	}
}

// ask puts a question to a task. The error names the task.
func (r *roster) ask(ctx context.Context, to *member, q message, most time.Duration) (message, error) {
	a, err := to.ask(ctx, q, most)
	if err != nil {
		return message{}, fmt.Errorf("%s: %w", r.config.name(to.task), err)
	}
	return a, nil
}

// decide notes that the chief has chosen; fresh: nothing.
func (r *roster) decide(fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decided, r.fresh = true, fresh
}

// release lets the tasks go that want to leave and are not needed. Until all
// workers have restored what they need, every task that holds files is needed.
func (r *roster) release() {
	r.mu.Lock()
	decided, fresh := r.decided, r.fresh
	r.mu.Unlock()
	if !decided {
		return
	}
	present := r.present()
	for _, m := range present {
		if m.task.Role == cluster.Worker && !m.restored.Load() && !m.leaving.Load() && !fresh {
			return
		}
	}
	for _, m := range present {
		if m.leaving.Load() {
			m.dismiss()
		}
	}
}
