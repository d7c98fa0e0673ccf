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

// Expected describes a save that is about to begin.
type Expected struct {
	// Manifest has the fields that are known before the save: all fields
	// except Format, ID, Time, Files, Parts and Carried.
	Manifest checkpoint.Manifest
	// Number is the number of the save, which the shard holders' snapshots for
	// this save will have as transition.Snapshot.Number.
	Number uint64
	// Holders are the tasks that store pieces of variables and will save them.
	Holders []cluster.Task
	// Carriers are the workers that will call SaveCarried with recurrent
	// state.
	Carriers []cluster.Task
	// Leaving are tasks whose folders will be unreachable after the save, for
	// example because the job moves to other hosts. A task that stays must
	// copy the files that they write.
	Leaving []cluster.Task
}

// save is the chief's record of the save that is under way. The mutex of the
// chief guards it.
type save struct {
	id       string // ID of the checkpoint
	expected Expected
	began    time.Time                      // when the chief announced the save; becomes the time in the manifest
	due      map[source]bool                // files (sources) that are not written or whose second copy is missing; all values are true
	all      chan struct{}                  // closed when due is empty or the save has failed
	err      error                          // why the save has failed; nil if it has not failed so far
	reports  map[source]*report             // by source: the report that its task has sent
	buddies  map[cluster.Task]*cluster.Task // by task that writes a file: the buddy, the task that keeps the second copy; nil if no task keeps a copy
	held     time.Duration                  // longest time for which training waited for a shard holder's snapshot
	done     chan struct{}                  // closed after the chief has sent all tasks the outcome
	sealing  bool                           // true if manifests are being written, so that the checkpoint may already be valid on disk
}

// source identifies one file of a save: a task's pieces of variables, or a
// task's recurrent state.
type source struct {
	task  cluster.Task
	state bool // true for recurrent state, false for pieces of variables
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

// want returns what task t must write in this save. It also chooses the task
// that keeps the second copy of that file.
func (s *save) want(t cluster.Task, plan copyPlan, name func(cluster.Task) string) wanted {
	w := wanted{Pieces: s.due[source{t, false}], State: s.due[source{t, true}]}
	if w.Pieces || w.State {
		buddy, kept := plan.keeper(t)
		if !kept {
			s.fail(fmt.Errorf("%s leaves the job, and no remaining host can keep a copy of its files", name(t)))
		}
		s.buddies[t] = buddy
	}
	return w
}

// fail makes the save fail for the reason err, unless the save is complete or
// has failed before.
func (s *save) fail(err error) {
	if s.err == nil && !s.complete() {
		s.err = err
		close(s.all)
	}
}

// giveUp makes the save fail even if all reports have arrived. It returns
// false and does nothing if manifests are already being written.
func (s *save) giveUp(err error) bool {
	if s.sealing {
		return false
	}
	s.fail(err)
	s.err = cmp.Or(s.err, err)
	return true
}

// complete reports whether all files are written and copied, or the save has
// failed.
func (s *save) complete() bool {
	select {
	case <-s.all:
		return true
	default:
		return false
	}
}

// needs reports whether task t still has to write a file or keep a second
// copy. If needs returns false, the save can succeed although t is lost.
func (s *save) needs(t cluster.Task) bool {
	for due := range s.due {
		if buddy := s.buddies[due.task]; due.task == t || buddy != nil && *buddy == t {
			return true
		}
	}
	return false
}

// concerns reports whether a task in the group writes a file in this save or
// keeps a second copy.
func (s *save) concerns(group []*member) bool {
	for of, buddy := range s.buddies {
		if place(group, of) >= 0 || buddy != nil && place(group, *buddy) >= 0 {
			return true
		}
	}
	return false
}

// take handles a task's report that it has written its part. It returns the
// task that must now make a second copy of the file, or nil if no task must.
// The function name returns a task's name for messages.
func (s *save) take(from cluster.Task, r *report, name func(cluster.Task) string) (buddy *cluster.Task) {
	which := source{from, r.State}
	if !s.due[which] || s.reports[which] != nil || s.complete() {
		return nil // the report is a duplicate, or the save has ended
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

// copied handles the report of the task at about a second copy that it was
// asked to make. copied returns true if the chief (worker 0) expected the copy
// and the copy has failed.
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

// settle records that a source (file) is written and copied. After the last
// source the save is complete.
func (s *save) settle(which source) {
	delete(s.due, which)
	if len(s.due) == 0 {
		close(s.all)
	}
}

// check returns an error if a task's report says that the task has failed, or
// if it names a file that this task does not write. The argument from is the
// task.
func check(from cluster.Task, r *report) error {
	switch name := tensors.FileName(from, r.State); {
	case r.Err != "":
		return errors.New(r.Err)
	case r.File != nil && (r.File.Name != name || r.File.Task != from.String()):
		return fmt.Errorf("has written %q of %q, want %q", r.File.Name, r.File.Task, name)
	}
	return nil
}

// manifest builds the manifest of a complete save from the reports.
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

// copyPlan decides which task keeps the second copy of the file that another
// task writes in a save.
type copyPlan struct {
	host func(cluster.Task) string // returns the name of a task's host
	here [][]*member               // groups of present tasks that share a folder
	stay [][]*member               // the groups in the field here, without the tasks that leave after the save; has no empty group
}

// newCopyPlan returns the plan for a save. After the save, the folders of the
// tasks in leaving are unreachable.
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

// keeper chooses the buddy of a task: the task that keeps a second copy of its
// file. buddy is nil if no task does. kept is false if the file would be lost:
// the task's folder becomes unreachable, and no other task can copy the file.
func (p copyPlan) keeper(of cluster.Task) (buddy *cluster.Task, kept bool) {
	holds := func(group []*member) bool { return place(group, of) >= 0 }
	if slices.ContainsFunc(p.stay, holds) {
		return p.buddy(p.stay, of), true
	}
	i := slices.IndexFunc(p.here, holds)
	if i < 0 {
		return nil, true // The task is not connected. Another check makes the save fail.
	}
	own := p.here[i]
	others := slices.DeleteFunc(slices.Clone(p.stay), func(group []*member) bool { return slices.Contains(own, group[0]) })
	buddy = p.buddy(append([][]*member{own}, others...), of)
	return buddy, buddy != nil || len(others) < len(p.stay)
}

// place returns the index of a task in group, or a negative number if the task
// is not in the group.
func place(group []*member, of cluster.Task) int {
	return slices.IndexFunc(group, func(m *member) bool { return m.task == of })
}

// buddy chooses the task that keeps the second copy of the file that the task
// in the parameter of writes. groups has the groups of tasks that share a
// folder. The buddy is in the group after that of the writing task, if
// possible on another host. It has the same index in its group as the writing
// task in its own, so that copies are spread. buddy avoids groups in which a
// copy has failed before. With a single group, it returns nil.
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

// Summary has the numbers about a run's saves (checkpoints) that the chief
// (worker 0) reports at the end.
type Summary struct {
	Saved       int           // number of saves that succeeded
	Step        uint64        // number of training steps in the newest successful save
	Failed      int           // number of saves that failed
	Bytes       int64         // total size of all files that were saved, without second copies
	LongestHeld time.Duration // longest time for which training waited while shard holders copied their values
	Held        time.Duration // sum over all saves of the time for which training waited
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

// line returns the log line of a successful save. host returns the name of a
// task's host.
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

// size formats n bytes as KiB, MiB, GiB or TiB.
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

// brief rounds t to a tenth of a millisecond.
func brief(t time.Duration) time.Duration { return t.Round(100 * time.Microsecond) }
