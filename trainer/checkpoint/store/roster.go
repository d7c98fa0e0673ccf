package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"golang.org/x/sync/errgroup"
)

// roster is the chief's list of tasks: who is there, and which folders
// are one. Any goroutine may call its methods.
type roster struct {
	config Config
	tasks  []cluster.Task // all tasks of the job

	mu       sync.Mutex
	members  map[cluster.Task]*member // the tasks that have said hello
	groups   [][]cluster.Task         // sets of tasks whose folders are the same folder; nil before find
	decided  bool                     // the chief has chosen what training resumes from
	fresh    bool                     // the choice is to begin anew; valid if decided
	complete chan struct{}            // closed when all tasks have said hello
	lost     chan error               // why a task was lost; has room for the first error
}

func newRoster(c Config) *roster {
	return &roster{config: c, tasks: c.tasks(), members: map[cluster.Task]*member{}, complete: make(chan struct{}), lost: make(chan error, 1)}
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
	if len(r.members) == len(r.tasks) {
		close(r.complete)
	}
	return from, nil
}

// lose notes why a task has gone, for assemble.
func (r *roster) lose(err error) {
	select {
	case r.lost <- err:
	default: // one is enough
	}
}

// assemble returns once all tasks are there.
func (r *roster) assemble(ctx context.Context) error {
	select {
	case <-r.complete:
		return nil
	case err := <-r.lost:
		return err
	case <-ctx.Done():
	}
	missing := slices.DeleteFunc(slices.Clone(r.tasks), func(t cluster.Task) bool { return r.member(t) != nil })
	if len(missing) == 0 {
		return nil
	}
	return r.config.blame(missing[0], fmt.Errorf("%w: no sign of %v", context.Cause(ctx), missing))
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

// member is a task as the chief sees it. Any goroutine may use it.
type member struct {
	task  cluster.Task
	out   *mailbox // messages to the task
	token string   // names the probe in the task's folder, which tells shared folders
	gone  turn     // over when the connection has ended; its error is nil if the task was allowed to go

	restored  atomic.Bool // the task will read no more of the chosen checkpoint
	leaving   atomic.Bool // the task wants to go
	dismissed atomic.Bool // the chief has allowed the task to go
	failed    atomic.Bool // the task has failed to keep a second copy of another task's file

	mu        sync.Mutex
	asked     uint64                  // number of questions so far, which is the number of the last one
	questions map[uint64]chan message // by number: gets the answer; has room for it
}

func newMember(t cluster.Task, hello message) *member {
	return &member{task: t, out: newMailbox(), token: hello.Token, gone: newTurn(),
		questions: map[uint64]chan message{}}
}

// present reports whether the task is there and stays for the time being.
func (m *member) present() bool { return !m.dismissed.Load() && !m.gone.over() }

// lost reports whether the task's connection has ended.
func (m *member) lost() bool { return m.gone.over() }

// dismiss allows the task to go.
func (m *member) dismiss() {
	if !m.dismissed.Swap(true) {
		m.out.post(message{Kind: bye})
	}
}

// ask puts a question and waits for the answer, but not longer than most.
func (m *member) ask(ctx context.Context, q message, most time.Duration) (message, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("no answer within %v", most))
	defer cancel()
	answered := make(chan message, 1)
	m.mu.Lock()
	m.asked++
	q.Number = m.asked
	m.questions[q.Number] = answered
	m.mu.Unlock()
	defer m.forget(q.Number)
	m.out.post(q)
	select {
	case a := <-answered:
		if a.Err == "" {
			return a, nil
		}
		return message{}, errors.New(a.Err)
	case <-m.gone.done:
		return message{}, cmp.Or(m.gone.err, errors.New("it has left"))
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	}
}

func (m *member) forget(number uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.questions, number)
}

// answer takes an answer of the task. Nobody may wait for it any more.
func (m *member) answer(a message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if to := m.questions[a.Number]; to != nil {
		delete(m.questions, a.Number)
		to <- a // it has room for one
	}
}

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
	for i := range tokens {
		shares := func(group []int) bool {
			return slices.ContainsFunc(group, func(j int) bool {
				return slices.Contains(seen[i], tokens[j]) || slices.Contains(seen[j], tokens[i])
			})
		}
		group := []int{i}
		for _, g := range groups {
			if shares(g) {
				group = append(group, g...)
			}
		}
		slices.Sort(group)
		groups = append(slices.DeleteFunc(groups, shares), group)
	}
	slices.SortFunc(groups, slices.Compare)
	return groups
}

// report logs once how safe checkpoints are.
func (r *roster) report(groups [][]cluster.Task) {
	hosts := map[string]bool{}
	for _, t := range r.tasks {
		hosts[r.config.host(t)] = true
	}
	for _, group := range groups {
		r.config.logf(slog.LevelDebug, "checkpoints: %v share a folder on %s", group, r.config.host(group[0]))
	}
	switch {
	case len(groups) > 1:
	case len(hosts) > 1:
		r.config.logf(cluster.VerboseLevel, "checkpoints lie in one folder that %d hosts share: there are no second copies", len(hosts))
	default:
		r.config.logf(cluster.VerboseLevel, "checkpoints lie on %s alone: there is no other host for second copies", r.config.host(r.tasks[0]))
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
