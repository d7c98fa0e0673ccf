package depot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"golang.org/x/sync/errgroup"
)

// Expected is what belongs to a save.
type Expected struct {
	// Manifest is what is known before: all but Format, ID, Time, Files, Parts
	// and Carried.
	Manifest checkpoint.Manifest
	// Number is that of the owners' snapshots.
	Number uint64
	// Owners are the tasks that have pieces; Carriers the workers that will
	// call SaveCarried.
	Owners   []cluster.Task
	Carriers []cluster.Task
	// Leaving are tasks whose folders are about to be out of reach: what they
	// write must have a copy elsewhere.
	Leaving []cluster.Task
}

// save is one that is under way, as the chief sees it. It is guarded by the
// chief's mu.
type save struct {
	id       string
	expected Expected
	began    time.Time
	due      map[source]bool
	all      chan struct{} // closed: nothing is due any more, or it has failed
	err      error         // why
	reports  []report
	buddies  map[cluster.Task]*cluster.Task
	held     time.Duration
	done     chan struct{} // closed: it is over
	sealing  bool          // manifests are being written: it may be good already
}

// source is a task's pieces or its state.
type source struct {
	task  cluster.Task
	state bool
}

// Busy reports whether a save is under way. It is the chief's to ask.
func (d *Depot) Busy() bool {
	if d.chief == nil {
		return d.busy() != ""
	}
	d.chief.mu.Lock()
	defer d.chief.mu.Unlock()
	return d.chief.saving != nil
}

// Expect announces a save to all tasks, right before the chief makes owners
// copy what they have. It does not wait. Only one save is under way at a time,
// see Busy; how it went is in the log, in Wait's error and in the Summary.
func (d *Depot) Expect(e Expected) error {
	c := d.chief
	if c == nil {
		return errors.New("checkpoints: only the chief saves")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.saving != nil {
		return fmt.Errorf("checkpoint of step %d: that of step %d is still being written", e.Manifest.Step, c.saving.expected.Manifest.Step)
	}
	s := c.newSave(e)
	if !d.start(func(ctx context.Context) { c.conduct(ctx, s) }) {
		return errClosed
	}
	c.saving = s
	stay := c.staying(e.Leaving)
	for _, to := range c.present() {
		w := wanted{Pieces: s.due[source{to.task, false}], State: s.due[source{to.task, true}]}
		if w.Pieces || w.State {
			kept := false
			if w.Buddy, kept = c.keeper(stay, to.task); !kept {
				s.fail(fmt.Errorf("%s leaves, and no host that stays can keep what it has", c.config.name(to.task)))
			}
			s.buddies[to.task] = w.Buddy
		}
		to.out.post(message{Kind: begin, ID: s.id, Step: e.Manifest.Step, Number: e.Number, Wanted: &w})
	}
	for due := range s.due {
		if m := c.members[due.task]; m == nil || m.dismissed || m.lost() {
			s.fail(fmt.Errorf("%s: it has left", c.config.name(due.task)))
		}
	}
	return nil
}

func (c *chief) newSave(e Expected) *save {
	s := &save{
		id: checkpoint.NewID(e.Manifest.Step, c.config.Peers.Generation), expected: e, began: time.Now(),
		due: map[source]bool{}, buddies: map[cluster.Task]*cluster.Task{},
		all: make(chan struct{}), done: make(chan struct{}),
	}
	for _, t := range e.Owners {
		s.due[source{t, false}] = true
	}
	for _, t := range e.Carriers {
		s.due[source{t, true}] = true
	}
	if len(s.due) == 0 {
		s.fail(errors.New("nothing belongs to it"))
	}
	return s
}

// fail ends the wait for reports.
func (s *save) fail(err error) {
	if s.err == nil && !s.complete() {
		s.err = err
		close(s.all)
	}
}

// needs reports whether something is still to come from a task, or to be copied
// to it. A worker that has no part in a save may be lost meanwhile.
func (s *save) needs(t cluster.Task) bool {
	for due := range s.due {
		if buddy := s.buddies[due.task]; due.task == t || buddy != nil && *buddy == t {
			return true
		}
	}
	return false
}

// complete reports whether nothing is waited for any more.
func (s *save) complete() bool {
	select {
	case <-s.all:
		return true
	default:
		return false
	}
}

// take is for what a task says of its part.
func (c *chief) take(s *save, from *member, r *report) {
	which := source{from.task, r.State}
	if !s.due[which] || s.complete() {
		return // it was said before, or all is over
	}
	if buddy := s.buddies[from.task]; r.Err != "" && r.Copy && buddy != nil && c.members[*buddy] != nil {
		c.members[*buddy].failed = true
	}
	if err := s.check(from.task, r); err != nil {
		s.fail(fmt.Errorf("%s: %w", c.config.name(from.task), err))
		return
	}
	delete(s.due, which)
	s.reports = append(s.reports, *r)
	s.held = max(s.held, time.Duration(r.Held))
	if len(s.due) == 0 {
		close(s.all)
	}
}

// check says what is wrong with a report.
func (s *save) check(from cluster.Task, r *report) error {
	switch name := fileName(from, r.State); {
	case r.Err != "":
		return errors.New(r.Err)
	case r.File == nil:
		return nil
	case r.File.Name != name || r.File.Task != from.String():
		return fmt.Errorf("has written %q of %q, want %q", r.File.Name, r.File.Task, name)
	case r.Copy != (s.buddies[from] != nil):
		return fmt.Errorf("%s: second copy %t, want %t", name, r.Copy, !r.Copy)
	}
	return nil
}

// conduct sees a save to its end.
func (c *chief) conduct(ctx context.Context, s *save) {
	m, err := c.collect(ctx, s)
	if err == nil {
		err = c.commit(ctx, s, m)
	}
	c.conclude(s, m, err)
}

// collect waits for all reports and makes the manifest.
func (c *chief) collect(ctx context.Context, s *save) (*checkpoint.Manifest, error) {
	select {
	case <-s.all:
	case <-ctx.Done():
		return nil, errClosed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	m := s.expected.Manifest
	m.ID, m.Generation, m.Time = s.id, c.config.Peers.Generation, s.began
	m.Files, m.Parts, m.Carried = nil, nil, nil
	for _, r := range s.reports {
		if r.File != nil {
			m.Files = append(m.Files, *r.File)
		}
		m.Parts = append(m.Parts, r.Parts...)
		m.Carried = append(m.Carried, r.Carried...)
	}
	slices.SortFunc(m.Files, func(a, b checkpoint.File) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(m.Parts, func(a, b checkpoint.Part) int {
		return cmp.Or(cmp.Compare(a.Variable, b.Variable), cmp.Compare(a.Offset, b.Offset))
	})
	slices.SortFunc(m.Carried, func(a, b checkpoint.Carried) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Lo, b.Lo))
	})
	return &m, nil
}

// commit has one task of every group write the manifest.
func (c *chief) commit(ctx context.Context, s *save, m *checkpoint.Manifest) error {
	if err := c.depot.hook("depot.manifest"); err != nil {
		return err
	}
	body, err := m.Encode()
	if err != nil {
		return err
	}
	groups, err := c.seal(s)
	if err != nil {
		return err
	}
	writing, ctx := errgroup.WithContext(ctx)
	for _, group := range groups {
		writing.Go(func() error {
			q := message{Kind: commit, ID: s.id, Body: body}
			_, err := c.ask(ctx, group[0], q, c.config.patience(int64(len(body))))
			if err != nil && c.lostForNothing(s, group) {
				return nil
			}
			return err
		})
	}
	return writing.Wait()
}

// seal returns who writes the manifest, unless the save was given up meanwhile.
func (c *chief) seal(s *save) ([][]*member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.sealing = s.err == nil
	return c.here(), s.err
}

// lostForNothing reports whether the tasks of a group have no part in a save and
// some are lost: what they hold of it, a manifest, nobody misses.
func (c *chief) lostForNothing(s *save, group []*member) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for of, buddy := range s.buddies {
		for _, m := range group {
			if m.task == of || buddy != nil && m.task == *buddy {
				return false
			}
		}
	}
	return slices.ContainsFunc(group, (*member).lost)
}

// commit writes the manifest of the save that is under way.
func (d *Depot) commit(m message) error {
	if d.busy() != m.ID {
		return fmt.Errorf("checkpoint %s is not being saved here", m.ID)
	}
	manifest, err := checkpoint.DecodeManifest(m.Body)
	if err != nil {
		return err
	}
	if manifest.ID != m.ID {
		return fmt.Errorf("the manifest is of checkpoint %s", manifest.ID)
	}
	if err := d.folder.WriteManifest(manifest); err != nil {
		return err
	}
	return d.hook("depot.ack")
}

// conclude tells everybody how it went.
func (c *chief) conclude(s *save, m *checkpoint.Manifest, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saving, c.last = nil, nil
	defer close(s.done)
	defer c.release()
	if err != nil {
		step := s.expected.Manifest.Step
		c.last = fmt.Errorf("checkpoint of step %d: %w", step, err)
		c.summary.Failed++
		c.config.logf(slog.LevelWarn, "checkpoint of step %d has failed, the training goes on and earlier checkpoints stay: %v", step, err)
		c.withdraw(s)
		return
	}
	c.summary.add(s, m)
	c.config.logf(slog.LevelInfo, "%s", c.line(s, m))
	for _, to := range c.present() {
		to.out.post(message{Kind: over, ID: s.id})
	}
	for _, group := range c.here() {
		group[0].out.post(message{Kind: retain, Keep: c.config.Keep})
	}
}

// withdraw has everybody remove what there is of a save that has failed. It needs
// c.mu.
func (c *chief) withdraw(s *save) {
	for _, to := range c.present() {
		to.out.post(message{Kind: abandon, ID: s.id, Remove: true})
	}
}
