package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/lifetime"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
	"golang.org/x/sync/errgroup"
)

// chief makes the decisions of the checkpoint store, in the task that is the
// chief (worker 0). It receives the messages of all tasks, including its own.
// Only one save is under way at a time. To avoid deadlocks, lock chief.mu
// before roster.mu.
type chief struct {
	config     Config
	life       *lifetime.Lifetime
	roster     *roster
	hook       func(place string) error // called with an operation's name before it starts; tests return an error to make it fail
	dismissing sync.Once

	mu      sync.Mutex
	saving  *save   // the current save; nil means that none is under way
	last    error   // why the last save failed; nil if it succeeded or there was none
	summary Summary // counts of all saves of this run so far
}

// gather waits until all tasks are connected, and finds out which of them
// share a folder. s is the checkpoint store of the chief's own task. first is
// the hello message of that task.
func (c *chief) gather(ctx context.Context, s *Store, first message) error {
	self, err := c.roster.enter(c.config.Peers.Self, first)
	if err != nil {
		return err
	}
	c.life.Go(func(ctx context.Context) {
		self.out.run(ctx, func(m message) error { return s.handle(ctx, m) }) // run returns when the store is closed; its error is not needed
	})
	c.life.Go(func(ctx context.Context) {
		s.up.run(ctx, func(m message) error { return c.handle(self, m) }) // run returns when the store is closed; its error is not needed
	})
	if c.config.Listener != nil {
		c.config.Listener.Handle(purpose, c.meet)
	}
	if err = c.roster.assemble(ctx); err == nil {
		err = c.roster.find(ctx)
	}
	opening := message{Kind: joined}
	if err != nil {
		opening.Err = string(peers.EncodeReport(err))
	}
	c.roster.broadcast(opening)
	return err
}

// meet handles a connection of another task until the connection ends.
func (c *chief) meet(p peers.Peer) {
	if !c.life.Do(func(ctx context.Context) { c.serve(ctx, p) }) {
		p.Conn.Close() // refuse the connection: the store is closed
	}
}

func (c *chief) serve(ctx context.Context, p peers.Peer) {
	s := peers.NewSession(p, c.config.Peers.Generation, c.config.Silence)
	defer s.Close() // error ignored: the conversation has ended
	defer s.CloseWith(ctx)()
	var first message
	var from *member
	err := s.NextJSON(wire.Message, &first, maxMessage)
	if err == nil {
		from, err = c.roster.enter(s.Task, first)
	}
	if err != nil {
		c.config.logf(slog.LevelWarn, "checkpoints: refused %s from %s: %v", p.Task, p.Addr, err)
		return
	}
	c.parted(from, converse(ctx, s, from.out, func(m message) error { return c.handle(from, m) }))
}

// parted records that the connection to task m has ended for the reason err.
// If the chief had not allowed the task to end, the task counts as lost.
func (c *chief) parted(m *member, err error) {
	if m.dismissed.Load() {
		err = nil
	} else {
		err = c.config.blame(m.task, err)
		c.config.logf(slog.LevelDebug, "checkpoints: %v", err)
	}
	m.gone.take(err)
	if err != nil {
		c.lost(m.task, err)
		c.roster.lose(err)
	}
	c.release()
}

// handle executes one message from a task. It must not block, because the next
// message is read only after handle has returned.
func (c *chief) handle(from *member, m message) error {
	switch m.Kind {
	case answer:
		from.answer(m)
	case reported:
		if m.Report == nil {
			return errors.New("a report message without a report")
		}
		c.take(from.task, m.ID, m.Report)
	case restored:
		from.restored.Store(true)
		c.release()
	case leave:
		from.leaving.Store(true)
		c.release()
	default:
		return fmt.Errorf("unexpected %q message", m.Kind)
	}
	return nil
}

// dismiss allows all other tasks to end, and waits at most two seconds until
// they have disconnected. It gives up the current save.
func (c *chief) dismiss() {
	c.abandon()
	for _, m := range c.roster.present() {
		m.dismiss()
	}
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	for _, m := range c.roster.all() { // Also wait for tasks that were allowed to end before: they may still be connected.
		if m.task == c.config.Peers.Self {
			continue
		}
		select {
		case <-m.gone.done:
		case <-timer.C:
			return
		}
	}
}

func (c *chief) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.saving != nil
}

func (c *chief) total() Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.summary
}

// expect starts a save. It plans which tasks write and which tasks copy files,
// and announces the save to all present tasks.
func (c *chief) expect(e Expected) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.saving != nil {
		return fmt.Errorf("checkpoint of step %d: that of step %d is still being written", e.Manifest.Step, c.saving.expected.Manifest.Step)
	}
	s := newSave(e, c.config.Peers.Generation)
	if !c.life.Go(func(ctx context.Context) { c.conduct(ctx, s) }) {
		return errClosed
	}
	c.saving = s
	plan := newCopyPlan(c.roster, e.Leaving)
	for _, to := range c.roster.present() {
		w := s.want(to.task, plan, c.config.name)
		to.out.post(message{Kind: begin, ID: s.id, Step: e.Manifest.Step, Number: e.Number, Wanted: w})
	}
	for due := range s.due {
		if m := c.roster.member(due.task); m == nil || !m.present() {
			s.fail(fmt.Errorf("%s: it has left", c.config.name(due.task)))
		}
	}
	return nil
}

// take handles a task's report that it has written its part of a save, or has
// copied a file.
func (c *chief) take(from cluster.Task, id string, r *report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.saving
	if s == nil || s.id != id {
		return
	}
	if r.Copy {
		if s.copied(from, r, c.config.name) {
			c.roster.member(from).failed.Store(true)
		}
	} else if buddy := s.take(from, r, c.config.name); buddy != nil {
		c.roster.member(*buddy).out.post(message{Kind: keep, ID: id, File: r.File})
	}
}

// lost makes the current save fail if it still needs task t, which is lost for
// the reason err.
func (c *chief) lost(t cluster.Task, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.saving != nil && c.saving.needs(t) {
		c.saving.fail(err)
	}
}

// release allows those tasks to end that have asked for it and are not needed.
// During a save all tasks are needed.
func (c *chief) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.saving == nil {
		c.roster.release()
	}
}

// conduct waits until all parts of save s are written and copied, and then
// makes the tasks write the manifest.
func (c *chief) conduct(ctx context.Context, s *save) {
	select {
	case <-s.all:
	case <-ctx.Done():
		c.conclude(s, nil, errClosed)
		return
	}
	c.mu.Lock()
	m, err := s.manifest(c.config.Peers.Generation)
	c.mu.Unlock()
	if err == nil {
		err = c.commit(ctx, s, m)
	}
	c.conclude(s, m, err)
}

// commit makes tasks write the manifest m: one task of every group of tasks
// that share a folder.
func (c *chief) commit(ctx context.Context, s *save, m *checkpoint.Manifest) error {
	if err := c.hook("store.manifest"); err != nil {
		return err
	}
	body, err := m.Encode()
	if err != nil {
		return err
	}
	c.mu.Lock()
	s.sealing = s.err == nil // From now on giveUp, which abandons a save, must fail, because a manifest may be on disk.
	groups, err := c.roster.here(), s.err
	c.mu.Unlock()
	if err != nil {
		return err
	}
	writing, ctx := errgroup.WithContext(ctx)
	for _, group := range groups {
		writing.Go(func() error {
			q := message{Kind: commit, ID: s.id, Body: body}
			_, err := c.roster.ask(ctx, group[0], q, c.config.timeout(int64(len(body))))
			if err != nil && c.lostWithoutPart(s, group) {
				return nil
			}
			return err
		})
	}
	return writing.Wait()
}

// lostWithoutPart reports whether a task of the group (tasks that share a
// folder) is lost, and no task of the group wrote or copied a file in this
// save. The folder then needs no manifest.
func (c *chief) lostWithoutPart(s *save, group []*member) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !s.concerns(group) && slices.ContainsFunc(group, (*member).lost)
}

// conclude ends save s with the outcome err: it logs the outcome, counts it,
// and reports it to all tasks. If the save succeeded, conclude makes the tasks
// delete old checkpoints.
func (c *chief) conclude(s *save, m *checkpoint.Manifest, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saving, c.last = nil, nil
	defer close(s.done)
	defer c.roster.release()
	if err != nil {
		step := s.expected.Manifest.Step
		c.last = fmt.Errorf("checkpoint of step %d: %w", step, err)
		c.summary.Failed++
		c.config.logf(slog.LevelWarn, "checkpoint of step %d has failed, the training continues and earlier checkpoints stay: %v", step, err)
		c.roster.broadcast(message{Kind: over, ID: s.id, Remove: true})
		return
	}
	c.summary.add(s, m)
	c.config.logf(cluster.VerboseLevel, "%s", s.line(m, c.config.host))
	c.roster.broadcast(message{Kind: over, ID: s.id})
	for _, group := range c.roster.here() {
		group[0].out.post(message{Kind: retain, Keep: c.config.Keep})
	}
}

// abandon gives up the current save because the chief (worker 0) is ending. It
// does nothing if the manifests are already being written.
func (c *chief) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.saving; s != nil && s.giveUp(errClosed) {
		c.roster.broadcast(message{Kind: over, ID: s.id, Remove: true})
	}
}

// wait waits until no save is under way, and returns the error of the last
// save.
func (c *chief) wait(ctx context.Context) error {
	c.mu.Lock()
	s := c.saving
	c.mu.Unlock()
	if s != nil {
		select {
		case <-s.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}
