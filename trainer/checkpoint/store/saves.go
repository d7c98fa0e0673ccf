package store

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/lifetime"
	"golang.org/x/sync/errgroup"
)

// saves is the chief's side of saves, one at a time. Its mutex is locked before
// that of the roster.
type saves struct {
	config Config
	life   *lifetime.Lifetime
	roster *roster
	hook   func(place string) error // where tests put faults

	mu      sync.Mutex
	saving  *save // nil: none is under way
	last    error // of the last save
	summary Summary
}

func (c *saves) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.saving != nil
}

func (c *saves) total() Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.summary
}

// expect announces a save to all tasks that are there.
func (c *saves) expect(e Expected) error {
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

// take takes a task's report of its part in a save.
func (c *saves) take(from cluster.Task, id string, r *report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.saving
	if s == nil || s.id != id {
		return
	}
	if buddy := s.buddies[from]; r.Err != "" && r.Copy && buddy != nil && s.due[source{from, r.State}] && !s.complete() {
		if m := c.roster.member(*buddy); m != nil {
			m.failed.Store(true)
		}
	}
	s.take(from, r, c.config.name)
}

// lost fails the save that is under way if it needs a task that was lost.
func (c *saves) lost(t cluster.Task, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.saving != nil && c.saving.needs(t) {
		c.saving.fail(err)
	}
}

// release lets tasks go that are not needed: during a save all are.
func (c *saves) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.saving == nil {
		c.roster.release()
	}
}

// conduct sees a save to its end.
func (c *saves) conduct(ctx context.Context, s *save) {
	m, err := c.collect(ctx, s)
	if err == nil {
		err = c.commit(ctx, s, m)
	}
	c.conclude(s, m, err)
}

// collect waits for all reports and makes the manifest.
func (c *saves) collect(ctx context.Context, s *save) (*checkpoint.Manifest, error) {
	select {
	case <-s.all:
	case <-ctx.Done():
		return nil, errClosed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.manifest(c.config.Peers.Generation)
}

// commit has one task of every folder write the manifest.
func (c *saves) commit(ctx context.Context, s *save, m *checkpoint.Manifest) error {
	if err := c.hook("store.manifest"); err != nil {
		return err
	}
	body, err := m.Encode()
	if err != nil {
		return err
	}
	c.mu.Lock()
	groups, err := c.roster.here(), s.seal()
	c.mu.Unlock()
	if err != nil {
		return err
	}
	writing, ctx := errgroup.WithContext(ctx)
	for _, group := range groups {
		writing.Go(func() error {
			q := message{Kind: commit, ID: s.id, Body: body}
			_, err := c.roster.ask(ctx, group[0], q, c.config.patience(int64(len(body))))
			if err != nil && c.lostForNothing(s, group) {
				return nil
			}
			return err
		})
	}
	return writing.Wait()
}

// lostForNothing reports whether some tasks of a group are lost, and none has a
// part in the save: nobody misses the manifest that they hold.
func (c *saves) lostForNothing(s *save, group []*member) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !s.concerns(group) && slices.ContainsFunc(group, (*member).lost)
}

// conclude tells all tasks the outcome.
func (c *saves) conclude(s *save, m *checkpoint.Manifest, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saving, c.last = nil, nil
	defer close(s.done)
	defer c.roster.release()
	if err != nil {
		step := s.expected.Manifest.Step
		c.last = fmt.Errorf("checkpoint of step %d: %w", step, err)
		c.summary.failed()
		c.config.logf(slog.LevelWarn, "checkpoint of step %d has failed, the training continues and earlier checkpoints stay: %v", step, err)
		c.withdraw(s)
		return
	}
	c.summary.add(s, m)
	c.config.logf(slog.LevelInfo, "%s", s.line(m, c.config.host))
	c.roster.tell(message{Kind: over, ID: s.id})
	for _, group := range c.roster.here() {
		group[0].out.post(message{Kind: retain, Keep: c.config.Keep})
	}
}

// withdraw has all tasks remove what they have written in a save that has
// failed.
func (c *saves) withdraw(s *save) { c.roster.tell(message{Kind: abandon, ID: s.id, Remove: true}) }

// abandon gives up the save that is under way, because the chief is ending,
// unless manifests are being written.
func (c *saves) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.saving; s != nil && s.giveUp(errClosed) {
		c.withdraw(s)
	}
}

// wait waits until no save is under way and returns the last one's error.
func (c *saves) wait(ctx context.Context) error {
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
