package launcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/protocol"
)

// freshTime bounds the question where a job is now. Commands go on without an
// answer, with what the record says.
const freshTime = 10 * time.Second

// refreshed returns the job with the hosts that it has now. The record of a
// detached job is behind when another machine has scaled it; the agent that
// conducts it knows.
func (j *job) refreshed(ctx context.Context, accept bool) (*job, error) {
	if !j.movable() || j.Verdict != nil {
		return j, nil
	}
	bounded, cancel := context.WithTimeout(ctx, freshTime)
	defer cancel()
	state, err := j.stations[j.Chief].state(bounded)
	if err != nil {
		return j, nil // if the command needs that host it says so itself
	}
	before := j.Laid
	if err := j.learn(state, j.voice); err != nil {
		j.voice.say("%v", err)
	}
	if j.Laid == before {
		return j, nil
	}
	j.fleet.Close() // nothing was written
	return j.record.open(ctx, j.voice, accept)
}

// movable reports whether the job can get other hosts without a launcher here
// that notes them.
func (r *record) movable() bool { return r.Detached && !r.Embedded && !r.elsewhere }

// learn notes what the chief's host tells: where the job is now, and how it has
// ended. It is saved in the record of this machine where there is one.
func (r *record) learn(state protocol.State, v *voice) error {
	laid := false
	if state.Laid != nil && r.movable() {
		var err error
		if laid, err = r.lay(*state.Laid); err != nil {
			v.say("job %s: the hosts that it is said to have now are not noted: %v", r.Job, err)
		}
	}
	if state.Verdict != nil {
		r.Verdict = state.Verdict
	}
	if r.elsewhere || !laid && state.Verdict == nil {
		return nil
	}
	return saveRecord(*r)
}

// moved notes the new hosts of a job without a launcher, which would do so.
func (j *job) moved(answer protocol.Scaled) error {
	if !j.movable() {
		return nil
	}
	r := j.record
	if _, err := r.lay(protocol.Layout{Generation: answer.Generation, Hosts: answer.Hosts}); err != nil {
		return fmt.Errorf("job %s: its new hosts are not noted: %w", r.Job, err)
	}
	return saveRecord(r)
}

// lay takes over a layout that is newer than the record's, whole or not at all,
// and reports whether it did. Hosts that the record has keep their lines, for
// that is how this machine reaches them; a host that left stays, for its logs.
func (r *record) lay(layout protocol.Layout) (bool, error) {
	if layout.Generation <= r.Laid {
		return false, nil
	}
	known, last := map[string]hostRecord{}, map[string]int{}
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
			continue // it came again
		}
		hr, err := laidHost(known[h.Folder], h)
		if err != nil {
			return false, err
		}
		if h.Folder == chief {
			next.Chief = len(next.Hosts)
		}
		next.Hosts = append(next.Hosts, hr)
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

// laidHost is what the record says of a host from now on; old is what it says
// so far, or nothing.
func laidHost(old hostRecord, h protocol.HostPlan) (hostRecord, error) {
	hr := old
	if old.Line == "" || old.Left && !h.Left {
		host, err := readHost(h)
		if err != nil {
			return hr, err
		}
		hr = hostRecord{Line: host.String(), Folder: h.Folder, Binary: h.Binary}
	}
	hr.Left = h.Left
	if len(h.Tasks) > 0 {
		hr.Tasks = nil
	}
	for _, t := range h.Tasks {
		hr.Tasks = append(hr.Tasks, t.Task.String())
	}
	return hr, nil
}

// readHost reads how an agent says that a host is reached. That may make nothing
// be run here or there but an agent.
func readHost(h protocol.HostPlan) (hostfile.Host, error) {
	hosts, err := hostfile.ParseLines([]string{h.Line})
	if err != nil {
		return hostfile.Host{}, err
	}
	host := hosts[0] // a line is one host
	if (&remote{host: host}).folder() != h.Folder || host.Name != h.Host || !isBlob(h.Binary) {
		return host, errors.New("its folder or agent are not what they should be")
	}
	return host, nil
}
