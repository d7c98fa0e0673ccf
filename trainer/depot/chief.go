package depot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// chief is the chief's side: it knows all tasks, itself among them, and decides.
type chief struct {
	depot  *Depot
	config Config
	tasks  []cluster.Task

	dismissing sync.Once

	mu      sync.Mutex
	members map[cluster.Task]*member // who has come
	changed chan struct{}            // a token: somebody came or is gone
	groups  [][]cluster.Task         // whose folders are one folder
	decided bool                     // what to go on from
	fresh   bool                     // nothing
	saving  *save                    // nil: none is under way
	last    error                    // of the last save
	summary Summary
	numbers uint64 // of questions
}

// member is a task as the chief sees it.
type member struct {
	task    cluster.Task
	out     *mailbox
	token   string
	holding []announced
	gone    turn // with why it was lost, nil: it was allowed to go

	// Guarded by the chief's mu.
	questions map[uint64]chan message
	restored  bool
	leaving   bool
	dismissed bool
	failed    bool // a copy of another's file
}

// gather waits for all tasks and finds out who shares a folder.
func (d *Depot) gather(ctx context.Context, first message) error {
	c := &chief{depot: d, config: d.config, tasks: d.config.tasks(), members: map[cluster.Task]*member{}, changed: make(chan struct{}, 1)}
	d.chief = c
	self, err := c.enter(d.config.Peers.Self, first)
	if err != nil {
		return err
	}
	d.start(func(ctx context.Context) {
		self.out.run(ctx, func(m message) error { return d.hear(ctx, m) }) // ends with the depot
	})
	d.start(func(ctx context.Context) {
		d.up.run(ctx, func(m message) error { return c.hear(self, m) }) // likewise
	})
	if d.config.Door != nil {
		d.config.Door.Handle(purpose, c.meet)
	}
	err = c.assemble(ctx)
	opening := message{Kind: joined}
	if err != nil {
		opening.Err = string(peers.EncodeReport(err))
	}
	c.tell(opening)
	return err
}

// assemble returns once all tasks are there and grouped.
func (c *chief) assemble(ctx context.Context) error {
	for missing := c.missing(); len(missing) > 0; missing = c.missing() {
		select {
		case <-c.changed:
			if err := c.anyLost(); err != nil {
				return err
			}
		case <-ctx.Done():
			return c.config.blame(missing[0], fmt.Errorf("%w: no sign of %v", context.Cause(ctx), missing))
		}
	}
	return c.find(ctx)
}

func (c *chief) missing() (tasks []cluster.Task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tasks {
		if c.members[t] == nil {
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// anyLost is the error of a task that was lost.
func (c *chief) anyLost() error {
	for _, m := range c.all() {
		select {
		case <-m.gone.done:
			if m.gone.err != nil {
				return m.gone.err
			}
		default:
		}
	}
	return nil
}

// all returns the members in the order of tasks.
func (c *chief) all() (all []*member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tasks {
		if m := c.members[t]; m != nil {
			all = append(all, m)
		}
	}
	return all
}

// present returns those that have not left. It needs c.mu.
func (c *chief) present() (all []*member) {
	for _, t := range c.tasks {
		if m := c.members[t]; m != nil && !m.dismissed && !m.lost() {
			all = append(all, m)
		}
	}
	return all
}

func (m *member) lost() bool {
	select {
	case <-m.gone.done:
		return true
	default:
		return false
	}
}

// enter lets a task in that says hello.
func (c *chief) enter(t cluster.Task, m message) (*member, error) {
	if m.Kind != hello || m.Token == "" {
		return nil, fmt.Errorf("unexpected %q message, want hello", m.Kind)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.tasks, t) || c.members[t] != nil {
		return nil, errors.New("it is no task of this job, or it was here before")
	}
	from := &member{task: t, out: newMailbox(), token: m.Token, holding: m.Holding, gone: newTurn(), questions: map[uint64]chan message{}}
	c.members[t] = from
	c.note()
	return from, nil
}

// note wakes who waits for somebody to come or go.
func (c *chief) note() {
	select {
	case c.changed <- struct{}{}:
	default: // it will look anyway
	}
}

// meet serves a task's connection to its end.
func (c *chief) meet(p peers.Peer) {
	if !c.depot.during(func(ctx context.Context) { c.serve(ctx, p) }) {
		p.Conn.Close() // this task is ending
	}
}

func (c *chief) serve(ctx context.Context, p peers.Peer) {
	conn := wire.NewConn(p.Conn, c.config.Peers.Generation, c.config.Silence)
	defer conn.Close() // all was said, or it is cut
	from, err := c.greet(ctx, conn, p.Task)
	if err != nil {
		c.config.logf(slog.LevelWarn, "checkpoints: refused %s from %s: %v", p.Task, p.Addr, err)
		return
	}
	err = converse(ctx, conn, from.out, func(m message) error { return c.hear(from, m) })
	c.parted(from, err)
}

// greet waits for a task's first message.
func (c *chief) greet(ctx context.Context, conn *wire.Conn, t cluster.Task) (*member, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	timer := time.AfterFunc(c.config.Silence, func() { conn.Close() })
	defer timer.Stop()
	m, err := receiveMessage(conn, maxMessage)
	if err != nil {
		return nil, err
	}
	return c.enter(t, m)
}

// parted is told why a task is heard no more.
func (c *chief) parted(m *member, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.dismissed {
		err = nil
	} else {
		err = c.config.blame(m.task, err)
		c.config.logf(slog.LevelDebug, "checkpoints: %v", err)
	}
	m.gone.take(err)
	if c.saving != nil && err != nil && c.saving.needs(m.task) {
		c.saving.fail(err)
	}
	c.note()
	c.release()
}

// hear takes what a task says. It must not take long.
func (c *chief) hear(from *member, m message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m.Kind {
	case answer:
		if to := from.questions[m.Number]; to != nil {
			delete(from.questions, m.Number)
			to <- m // it has room for one
		}
	case reported:
		if m.Report == nil {
			return errors.New("a report without one")
		}
		if c.saving != nil && c.saving.id == m.ID {
			c.take(c.saving, from, m.Report)
		}
	case restored:
		from.restored = true
		c.release()
	case leave:
		from.leaving = true
		c.release()
	default:
		return fmt.Errorf("unexpected %q message", m.Kind)
	}
	return nil
}

// tell posts a message to all that are there.
func (c *chief) tell(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, to := range c.present() {
		to.out.post(m)
	}
}

// ask puts a question and waits for the answer, at most for so long. The error
// names the task.
func (c *chief) ask(ctx context.Context, to *member, q message, most time.Duration) (message, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("no answer within %v", most))
	defer cancel()
	answered := make(chan message, 1)
	c.mu.Lock()
	c.numbers++
	q.Number = c.numbers
	to.questions[q.Number] = answered
	c.mu.Unlock()
	to.out.post(q)
	defer func() {
		c.mu.Lock()
		delete(to.questions, q.Number)
		c.mu.Unlock()
	}()
	var err error
	select {
	case m := <-answered:
		if m.Err == "" {
			return m, nil
		}
		err = errors.New(m.Err)
	case <-to.gone.done:
		err = cmp.Or(to.gone.err, errors.New("it has left"))
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return message{}, fmt.Errorf("%s: %w", c.config.name(to.task), err)
}
