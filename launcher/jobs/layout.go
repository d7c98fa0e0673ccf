package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// refreshTime bounds the question which hosts a job has now. Without an answer a
// command goes on with what the record says.
const refreshTime = 10 * time.Second

// refreshed returns the job with the hosts that it has now. If another machine has
// scaled a detached job, the record here is out of date, and the agent that drives the
// job knows better.
func (j *Job) refreshed(ctx context.Context, acceptNewHostKeys bool) (*Job, error) {
	if !j.movable() || j.Verdict != nil {
		return j, nil
	}
	bounded, cancel := context.WithTimeout(ctx, refreshTime)
	defer cancel()
	state, err := j.chief().State(bounded)
	if err != nil {
		return j, nil // a command that needs the host reports the error
	}
	before := j.Laid
	if err := j.learn(state, j.printer); err != nil {
		j.printer.Error(err)
	}
	if j.Laid == before {
		return j, nil
	}
	j.close()
	return open(ctx, j.Record, j.printer, acceptNewHostKeys)
}

// movable reports whether the job can get other hosts while no launcher here notes
// them.
func (r *Record) movable() bool { return r.Detached && !r.Embedded && !r.found }

// learn takes over what an agent knows: the job's hosts, and how it ended. It saves the
// record if this machine has one.
func (r *Record) learn(state protocol.State, printer *console.Printer) error {
	laid := false
	if state.Laid != nil && r.movable() {
		var err error
		if laid, err = r.lay(*state.Laid); err != nil {
			printer.Printf("job %s: its new hosts were not recorded: %v", r.Job, err)
		}
	}
	if state.Verdict != nil {
		r.Verdict = state.Verdict
	}
	if r.found || !laid && state.Verdict == nil {
		return nil
	}
	return r.Save()
}

// moved records the new hosts of a scaled job. A job with a launcher is recorded by the
// launcher.
func (r Record) moved(answer protocol.Scaled) error {
	if !r.movable() {
		return nil
	}
	if _, err := r.lay(protocol.Layout{Generation: answer.Generation, Hosts: answer.Hosts}); err != nil {
		return fmt.Errorf("job %s: its new hosts were not recorded: %w", r.Job, err)
	}
	return r.Save()
}

// lay takes over a layout that is newer than the record's, whole or not at all, and
// reports whether it did. A known host keeps its line, by which this machine reaches
// it. A host that left stays in the record, for its logs.
func (r *Record) lay(layout protocol.Layout) (bool, error) {
	if layout.Generation <= r.Laid {
		return false, nil
	}
	known, last := map[string]HostRecord{}, map[string]int{}
	for _, h := range r.Hosts {
		known[h.Folder] = h
	}
	for i, h := range layout.Hosts {
		last[h.Folder] = i
	}
	next, chief := *r, r.Hosts[r.Chief].Folder
	next.Laid, next.Restarts, next.Hosts = layout.Generation, true, nil
	for i, h := range layout.Hosts {
		if last[h.Folder] != i {
			continue // the host left and joined again: its last entry counts
		}
		host, err := laidHost(known[h.Folder], h)
		if err != nil {
			return false, err
		}
		if h.Folder == chief {
			next.Chief = len(next.Hosts)
		}
		next.Hosts = append(next.Hosts, host)
		delete(known, h.Folder)
	}
	for _, h := range known {
		return false, fmt.Errorf("host %q is not among them", h.Line)
	}
	if _, err := next.reach(false); err != nil {
		return false, err
	}
	*r = next
	return true, nil
}

// laidHost returns the record of a host of a layout. old is its record so far, or zero.
func laidHost(old HostRecord, h protocol.HostPlan) (HostRecord, error) {
	host := old
	if old.Line == "" || old.Left && !h.Left {
		line, err := hosts.ReadPlan(h)
		if err != nil {
			return host, err
		}
		host = HostRecord{Line: line.String(), Folder: h.Folder, Binary: h.Binary}
	}
	host.Left = h.Left
	if len(h.Tasks) > 0 {
		host.Tasks = nil
	}
	for _, t := range h.Tasks {
		host.Tasks = append(host.Tasks, t.Task.String())
	}
	return host, nil
}
