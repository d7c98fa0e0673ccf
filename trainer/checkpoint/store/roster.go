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

// roster is the list of tasks that the chief (worker 0) keeps. It says which
// tasks are connected and which tasks share a checkpoint folder. Any goroutine
// may call its methods.
type roster struct {
	config Config
	tasks  []cluster.Task // all tasks of the job, connected or not

	mu       sync.Mutex
	members  map[cluster.Task]*member // the tasks that have sent their hello message
	groups   [][]cluster.Task         // sets of tasks that share a folder; nil until find has run
	decided  bool                     // true if the chief (worker 0) has chosen the checkpoint to resume from, or to begin training from scratch
	fresh    bool                     // true if the chief (worker 0) has chosen to begin training from scratch; valid if decided is true
	complete chan struct{}            // closed when every task of the job has sent its hello message
	lost     chan error               // gets the error of the first task that is lost; buffered
}

func newRoster(c Config) *roster {
	return &roster{config: c, tasks: c.tasks(), members: map[cluster.Task]*member{}, complete: make(chan struct{}), lost: make(chan error, 1)}
}

// enter adds task t, whose first message is m. It fails if t is unknown or
// already connected, or if m is no hello message.
func (r *roster) enter(t cluster.Task, m message) (*member, error) {
	if m.Kind != hello || m.Token == "" {
		return nil, fmt.Errorf("unexpected %q message, want hello", m.Kind)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.tasks, t) || r.members[t] != nil {
		return nil, errors.New("unknown task, or already connected before")
	}
	from := newMember(t, m)
	r.members[t] = from
	if len(r.members) == len(r.tasks) {
		close(r.complete)
	}
	return from, nil
}

// lose passes the error of a lost task to assemble. It keeps only the first
// error.
func (r *roster) lose(err error) {
	select {
	case r.lost <- err:
	default: // an earlier error is already in the channel; drop this one
	}
}

// assemble waits until all tasks of the job have sent hello.
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

// member returns the connected task t, or nil if t has not sent hello.
func (r *roster) member(t cluster.Task) *member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members[t]
}

// all returns the tasks that have ever connected, in the order of r.tasks.
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

// present returns the tasks that are connected and have not been allowed to
// end.
func (r *roster) present() []*member {
	return slices.DeleteFunc(r.all(), func(m *member) bool { return !m.present() })
}

// broadcast posts message m to all present tasks.
func (r *roster) broadcast(m message) {
	for _, to := range r.present() {
		to.out.post(m)
	}
}

// ask sends a request to a task and waits for the answer, but no longer than
// most. The error names the task.
func (r *roster) ask(ctx context.Context, to *member, q message, most time.Duration) (message, error) {
	a, err := to.ask(ctx, q, most)
	if err != nil {
		return message{}, fmt.Errorf("%s: %w", r.config.name(to.task), err)
	}
	return a, nil
}

// decide records that the chief (worker 0) has chosen the checkpoint from
// which training resumes. fresh is true if it has chosen none and training
// begins from scratch.
func (r *roster) decide(fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decided, r.fresh = true, fresh
}

// release allows tasks to end: those that have asked for it and are not needed
// any more. Until all workers have restored their state, every task that has
// checkpoint files is needed.
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

// member is what the chief (worker 0) knows about one task of the job. Any
// goroutine may call its methods.
type member struct {
	task  cluster.Task
	out   *mailbox // messages to the task
	token string   // name of the probe, a subfolder that the task has made in its checkpoint folder; other tasks that see it there share the folder
	gone  event    // happens when the connection ends; has no error if the chief (worker 0) had allowed the task to end

	restored  atomic.Bool // true if the task will read no more of the chosen checkpoint
	leaving   atomic.Bool // true if the task has asked to end
	dismissed atomic.Bool // true if the chief (worker 0) has allowed the task to end
	failed    atomic.Bool // true if the task once failed to make a second copy of another task's file

	mu          sync.Mutex
	lastRequest uint64                  // number of the last request to the task; 0 if no request was sent
	requests    map[uint64]chan message // by number of the request: a channel with a buffer for its answer
}

func newMember(t cluster.Task, hello message) *member {
	return &member{task: t, out: newMailbox(), token: hello.Token, gone: newEvent(),
		requests: map[uint64]chan message{}}
}

// present reports whether the task is connected and has not been allowed to
// end.
func (m *member) present() bool { return !m.dismissed.Load() && !m.gone.over() }

// lost reports whether the connection to the task has ended.
func (m *member) lost() bool { return m.gone.over() }

// dismiss allows the task to end, with a bye message.
func (m *member) dismiss() {
	if !m.dismissed.Swap(true) {
		m.out.post(message{Kind: bye})
	}
}

// ask sends request q to the task and waits for its answer, but no longer than
// most.
func (m *member) ask(ctx context.Context, q message, most time.Duration) (message, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("no answer within %v", most))
	defer cancel()
	answered := make(chan message, 1)
	m.mu.Lock()
	m.lastRequest++
	q.Number = m.lastRequest
	m.requests[q.Number] = answered
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
	delete(m.requests, number)
}

// answer passes the answer a to the call of ask that waits for it, or drops it
// if that call has timed out.
func (m *member) answer(a message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if to := m.requests[a.Number]; to != nil {
		delete(m.requests, a.Number)
		to <- a // does not block: the channel has room for one answer
	}
}

// find asks every task which probes it sees in its checkpoint folder. A probe
// is a subfolder that a task has created there. From the answers, find
// computes which tasks share a folder.
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
			a, err := r.ask(ctx, m, message{Kind: probes, Tokens: tokens}, r.config.Start)
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

// grouped returns the sets of tasks that share a folder, as lists of task
// indices. Each task has created a subfolder in its folder: tokens has the
// names, and seen[i] those that task i sees in its folder. Two tasks are in
// one set if one of them sees the other's subfolder.
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

// report logs which tasks share a checkpoint folder. If all tasks share one
// folder, it also logs that no file has a second copy on another host.
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

// here returns the groups of tasks that share a folder. It omits tasks that
// are not connected or are allowed to end, and groups that are then empty.
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
