package store

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/checkpoint/tensors"
	"github.com/plx-run/plx/trainer/cluster"
)

// Expected describes a save before it begins.
type Expected struct {
	// Manifest is the manifest as far as it is known before the save: all fields
	// but Format, ID, Time, Files, Parts and Carried.
	Manifest checkpoint.Manifest
	// Number is the number of the shard holders' snapshots for this save.
	Number uint64
	// Holders are the tasks that have pieces of variables.
	Holders []cluster.Task
	// Carriers are the workers that will call SaveCarried.
	Carriers []cluster.Task
	// Leaving are the tasks whose folders are about to be out of reach. What
	// they write needs a second copy in the folder of a task that stays.
	Leaving []cluster.Task
}

// save is one save that is under way, as the chief sees it. The chief's
// mutex guards it.
type save struct {
	id       string // ID of the checkpoint
	expected Expected
	began    time.Time                      // when the chief announced the save
	due      map[source]bool                // sources that are not reported or not copied yet; only true values
	all      chan struct{}                  // closed after due is empty, or after the save has failed
	err      error                          // why the save has failed; nil means that it has not
	reports  map[source]*report             // by source: the report that has come
	buddies  map[cluster.Task]*cluster.Task // by task that writes: the task that keeps the second copy; nil means none
	held     time.Duration                  // longest time for which a shard holder's step stood still
	done     chan struct{}                  // closed after the chief has told all tasks the outcome
	sealing  bool                           // manifests are being written, so the checkpoint may exist already
}

// source is a task's pieces or its carried state.
type source struct {
	task  cluster.Task
	state bool // true for the carried state, false for the pieces
}

func newSave(e Expected, generation int) *save {
	s := &save{
		id: checkpoint.NewID(e.Manifest.Step, generation), expected: e, began: time.Now(),
		due: map[source]bool{}, reports: map[source]*report{}, buddies: map[cluster.Task]*cluster.Task{},
		all: make(chan struct{}), done: make(chan struct{}),
	}
	for _, t := range e.Holders {
		s.due[source{t, false}] = true
	}
	for _, t := range e.Carriers {
		s.due[source{t, true}] = true
	}
	if len(s.due) == 0 {
		s.fail(errors.New("no task has anything to save"))
	}
	return s
}

// want plans a task's part: what it writes and who keeps the second copy.
func (s *save) want(t cluster.Task, plan copyPlan, name func(cluster.Task) string) wanted {
	w := wanted{Pieces: s.due[source{t, false}], State: s.due[source{t, true}]}
	if w.Pieces || w.State {
		buddy, kept := plan.keeper(t)
		if !kept {
			s.fail(fmt.Errorf("%s leaves, and no host that stays can keep what it has", name(t)))
		}
		s.buddies[t] = buddy
	}
	return w
}

// fail ends the wait for reports.
func (s *save) fail(err error) {
	if s.err == nil && !s.complete() {
		s.err = err
		close(s.all)
	}
}

// giveUp fails the save even if everything has been reported, unless manifests
// are being written. It reports whether the save was given up.
func (s *save) giveUp(err error) bool {
	if s.sealing {
		return false
	}
	s.fail(err)
	s.err = cmp.Or(s.err, err)
	return true
}

// complete reports whether all sources are reported and copied, or the save has failed.
func (s *save) complete() bool {
	select {
	case <-s.all:
		return true
	default:
		return false
	}
}

// needs reports whether a task still has to write something or to keep a copy.
// A worker that has no part in a save may be lost meanwhile.
func (s *save) needs(t cluster.Task) bool {
	for due := range s.due {
		if buddy := s.buddies[due.task]; due.task == t || buddy != nil && *buddy == t {
			return true
		}
	}
	return false
}

// concerns reports whether one of these tasks has written something or kept a
// copy.
func (s *save) concerns(group []*member) bool {
	for of, buddy := range s.buddies {
		if place(group, of) >= 0 || buddy != nil && place(group, *buddy) >= 0 {
			return true
		}
	}
	return false
}

// take counts a task's report of its part, and returns who is to keep a copy of
// the file; nil: nobody. An error comes with name of the task.
func (s *save) take(from cluster.Task, r *report, name func(cluster.Task) string) (buddy *cluster.Task) {
	which := source{from, r.State}
	if !s.due[which] || s.reports[which] != nil || s.complete() {
		return nil // it was reported before, or the save is over
	}
	if err := check(from, r); err != nil {
		s.fail(fmt.Errorf("%s: %w", name(from), err))
		return nil
	}
	s.reports[which] = r
	s.held = max(s.held, time.Duration(r.Held))
	if buddy := s.buddies[from]; buddy != nil && r.File != nil {
		return buddy
	}
	s.settle(which)
	return nil
}

// copied counts a task's report of a copy. It reports whether the task has
// failed to keep one that it should.
func (s *save) copied(at cluster.Task, r *report, name func(cluster.Task) string) (failed bool) {
	for which, of := range s.reports {
		buddy := s.buddies[which.task]
		if s.complete() || !s.due[which] || r.File == nil || of.File == nil || of.File.Name != r.File.Name || buddy == nil || *buddy != at {
			continue
		}
		if r.Err != "" {
			s.fail(fmt.Errorf("%s: second copy of %s at %s: %s", name(which.task), r.File.Name, name(at), r.Err))
			return true
		}
		s.settle(which)
	}
	return false
}

// settle notes that nothing more is to come of a source.
func (s *save) settle(which source) {
	delete(s.due, which)
	if len(s.due) == 0 {
		close(s.all)
	}
}

// check returns what is wrong with a report.
func check(from cluster.Task, r *report) error {
	switch name := tensors.FileName(from, r.State); {
	case r.Err != "":
		return errors.New(r.Err)
	case r.File != nil && (r.File.Name != name || r.File.Task != from.String()):
		return fmt.Errorf("has written %q of %q, want %q", r.File.Name, r.File.Task, name)
	}
	return nil
}

// manifest makes the manifest of a complete save.
func (s *save) manifest(generation int) (*checkpoint.Manifest, error) {
	if s.err != nil {
		return nil, s.err
	}
	m := s.expected.Manifest
	m.ID, m.Generation, m.Time = s.id, generation, s.began
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

// copyPlan says who keeps the second copy of what a task writes in a save.
type copyPlan struct {
	host func(cluster.Task) string // names a task's host
	here [][]*member               // the tasks that are present, grouped by folder
	stay [][]*member               // here without the tasks that leave after the save; no group is empty
}

// newCopyPlan plans for a save after which some tasks' folders are out of
// reach.
func newCopyPlan(r *roster, leaving []cluster.Task) copyPlan {
	p := copyPlan{host: r.config.host, here: r.here()}
	for _, group := range p.here {
		group = slices.DeleteFunc(slices.Clone(group), func(m *member) bool { return slices.Contains(leaving, m.task) })
		if len(group) > 0 {
			p.stay = append(p.stay, group)
		}
	}
	return p
}

// keeper returns the buddy of a task: who keeps the second copy of what it
// writes, nil for nobody. kept is false if the task leaves and no other task can
// keep its only copy.
func (p copyPlan) keeper(of cluster.Task) (buddy *cluster.Task, kept bool) {
	holds := func(group []*member) bool { return place(group, of) >= 0 }
	if slices.ContainsFunc(p.stay, holds) {
		return p.buddy(p.stay, of), true
	}
	i := slices.IndexFunc(p.here, holds)
	if i < 0 {
		return nil, true // it is not there, which fails the save
	}
	own := p.here[i]
	others := slices.DeleteFunc(slices.Clone(p.stay), func(group []*member) bool { return slices.Contains(own, group[0]) })
	buddy = p.buddy(append([][]*member{own}, others...), of)
	return buddy, buddy != nil || len(others) < len(p.stay)
}

// place is a task's place in a group; negative: it is not in it.
func place(group []*member, of cluster.Task) int {
	return slices.IndexFunc(group, func(m *member) bool { return m.task == of })
}

// buddy takes the next group, of another host if there is one. In that group it
// takes a task by the task's place in its own group, so that copies are spread.
// With one group there is none. A group in which a copy has failed before has
// no part as long as another is left.
func (p copyPlan) buddy(groups [][]*member, of cluster.Task) *cluster.Task {
	good := slices.DeleteFunc(slices.Clone(groups), func(group []*member) bool {
		return place(group, of) < 0 && slices.ContainsFunc(group, func(m *member) bool { return m.failed.Load() })
	})
	if len(good) > 1 {
		groups = good
	}
	own := slices.IndexFunc(groups, func(group []*member) bool { return place(group, of) >= 0 })
	if own < 0 || len(groups) < 2 {
		return nil
	}
	next := groups[(own+1)%len(groups)]
	for i := 1; i < len(groups); i++ {
		if g := groups[(own+i)%len(groups)]; p.host(g[0].task) != p.host(of) {
			next = g
			break
		}
	}
	return &next[place(groups[own], of)%len(next)].task
}

// Summary is the outcome of all saves, for the chief to report.
type Summary struct {
	Saved       int           // saves that succeeded
	Step        uint64        // number of steps in the newest of them
	Failed      int           // saves that failed
	Bytes       int64         // total size of all files, without second copies
	LongestHeld time.Duration // longest time for which a step stood still while shard holders copied
	Held        time.Duration // these times of all saves, added
}

func (s *Summary) add(of *save, m *checkpoint.Manifest) {
	s.Saved++
	s.Step = m.Step
	s.Bytes += bytesIn(m)
	s.Held += of.held
	s.LongestHeld = max(s.LongestHeld, of.held)
}

func bytesIn(m *checkpoint.Manifest) (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// line says what was saved; host names the host of a task.
func (s *save) line(m *checkpoint.Manifest, host func(cluster.Task) string) string {
	hosts := map[string]bool{}
	for task, buddy := range s.buddies {
		hosts[host(task)] = true
		if buddy != nil {
			hosts[host(*buddy)] = true
		}
	}
	return fmt.Sprintf("checkpoint of step %d: %s in %s on %s, steps held for %s, written in %s", m.Step, size(bytesIn(m)),
		plural.Count(len(m.Files), "file"), plural.Count(len(hosts), "host"), brief(s.held), brief(time.Since(s.began)))
}

// size is bytes in words.
func size(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	x, unit := float64(n)/(1<<10), 0
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	for ; x >= 999.95 && unit < len(units)-1; unit++ {
		x /= 1 << 10
	}
	return fmt.Sprintf("%.1f %s", x, units[unit])
}

// brief is a time to a tenth of a millisecond.
func brief(t time.Duration) time.Duration { return t.Round(100 * time.Microsecond) }
