// Package jobs implements the commands that work on launched jobs: it finds,
// lists, follows, stops and scales jobs, and removes the files that they left.
//
//	code, err := jobs.Attach(ctx, jobs.Query{Job: "mnist", Terminal: t})
//
// # How a job is found
//
// The machine that launched a job stores a [Record] of it (record.go). Another
// machine may scale a running detached job and so change its hosts. Therefore
// a command first asks the agent that drives the job for its current hosts,
// and updates the record. A machine without a record can search hosts for jobs
// (query.go).
//
// # What it does not do
//
// The package launches no jobs, restarts no tasks and takes no decisions for a
// job. That is the work of a job's driver, which runs in the agent of the
// chief's host or in plx launch.
package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/slurm"
	"github.com/plx-run/plx/launcher/submission"
)

// Defaults of plx launch. They also apply to a job of which this machine has
// no record.
const (
	// DefaultGrace is the time between asking a task to end and killing it.
	DefaultGrace = 10 * time.Second
	// DefaultLease is how long a host continues to run tasks without a message
	// from the job's driver (the process that decides for the job).
	DefaultLease = 30 * time.Second
)

// Record describes a job on the machine that launched it. It is stored in
// ~/.plx/jobs/<job>/job.json.
type Record struct {
	Job      string    `json:"job"`            // the job's id
	Name     string    `json:"name,omitempty"` // the user's name for the job; empty if the user gave none
	Program  string    `json:"program"`        // file name of the program
	Created  time.Time `json:"created"`
	Detached bool      `json:"detached,omitempty"`
	Restarts bool      `json:"restarts,omitempty"` // the job can restart, so tasks may have moved to other hosts since the launch
	Embedded bool      `json:"embedded,omitempty"` // the job ran on an embedded cluster: servers inside the plx launch process
	Way
	Launcher int               `json:"launcher"`        // pid of the plx launch process on this machine
	Grace    time.Duration     `json:"grace"`           // time between SIGTERM and SIGKILL for tasks; 0 kills them at once
	Lease    time.Duration     `json:"lease,omitempty"` // how long a host runs tasks without contact to the job's driver; 0 means DefaultLease
	Hosts    []HostRecord      `json:"hosts"`
	Chief    int               `json:"chief"`             // index into Hosts of the chief's host (worker:0), which knows how the job ended
	Laid     int               `json:"laid,omitempty"`    // generation (run of all tasks) of the newest layout received from an agent; 0 means none
	Verdict  *protocol.Verdict `json:"verdict,omitempty"` // how the job ended; nil if plx does not know that it has ended

	Checkpoints string `json:"checkpoints,omitempty"` // folder of the job's checkpoints, below ~/.plx/ckpt on the hosts
	Saves       bool   `json:"saves,omitempty"`       // the program's arguments make it save checkpoints

	Outputs []protocol.Output `json:"outputs,omitempty"` // files that the job makes

	Metrics []string `json:"metrics,omitempty"` // the user's patterns for metrics in the output, as in protocol.Spec

	Plan []string `json:"plan,omitempty"` // the plan of the launch: which tasks run where, as lines of a table

	found bool // built from the states on hosts instead of from job.json: may be incomplete, and is never saved
}

// Way describes how plx reaches the hosts of a Record. The zero value means
// SSH.
type Way struct {
	Via   string    `json:"via,omitempty"`  // command that connects to the hosts instead of ssh; empty means SSH
	Slurm slurm.Run `json:"slurm,omitzero"` // Slurm job whose nodes are the hosts; zero if they are no Slurm nodes
}

// HostRecord is one host of a Record.
type HostRecord struct {
	Line   string   `json:"line"`           // the host's line in the hosts file
	Folder string   `json:"folder"`         // name of the job's folder on the host, below ~/.plx/jobs/<job>/
	Binary string   `json:"binary"`         // path of the agent's executable on the host, relative to the home directory
	Tasks  []string `json:"tasks"`          // names of the host's tasks in the newest known generation (run of all tasks)
	Left   bool     `json:"left,omitempty"` // the host has left the job, but may still store its logs
}

// CheckpointName returns the folder name of the job's checkpoints on its
// hosts. It falls back to the job's name and id, because older versions of plx
// did not record the folder name.
func (r *Record) CheckpointName() string { return cmp.Or(r.Checkpoints, r.Name, r.Job) }

// recordFile is the name of the record's file in the job's folder.
const recordFile = "job.json"

// Save writes the record to its file atomically.
func (r *Record) Save() error {
	if err := submission.Write(r.Job, recordFile, r); err != nil {
		return fmt.Errorf("record job %s: %w", r.Job, err)
	}
	return nil
}

// Finish stores the verdict, which says how the job ended, in the record and
// saves the record.
func (r *Record) Finish(v protocol.Verdict) error {
	if v.Ended.IsZero() {
		v.Ended = time.Now()
	}
	r.Verdict = &v
	return r.Save()
}

// Forget removes the job's folder with the record. If Slurm may run the job's
// script again, that run needs the folder's other files, and Forget removes
// only the record.
func (r *Record) Forget() error {
	jobs, err := submission.Root()
	if err != nil {
		return err
	}
	if s, found := submission.Of(r.Job); found && s.Over == nil {
		return os.Remove(filepath.Join(jobs, r.Job, recordFile))
	}
	return os.RemoveAll(filepath.Join(jobs, r.Job))
}

// Records returns all records on this machine, the oldest first. It skips a
// record that it cannot read, because another version of plx wrote it or
// because it is partly removed.
func Records() ([]Record, error) {
	jobs, err := submission.Folders()
	var rs []Record
	for _, job := range jobs {
		if r, found := byID(job); found {
			rs = append(rs, r)
		}
	}
	slices.SortFunc(rs, older)
	return rs, err
}

// byID returns the record of the job with the given id. found is false if
// there is no record, or if the record is damaged.
func byID(job string) (r Record, found bool) {
	err := submission.Read(job, recordFile, &r)
	return r, err == nil && r.Job == job && r.Chief >= 0 && r.Chief < len(r.Hosts)
}

func older(a, b Record) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Job, b.Job)) }

// reach returns how to reach the record's hosts. A job on an embedded cluster
// ran on this machine, so a new embedded cluster can read the job's folders.
// like has the user's current options for reaching hosts.
func (r *Record) reach(like hosts.Reach) (hosts.Reach, error) {
	if r.Embedded {
		return hosts.Reach{LocalHosts: len(r.Hosts), LocalWorkers: 1}, nil
	}
	var lines []string
	for _, h := range r.Hosts {
		lines = append(lines, h.Line)
	}
	parsed, err := hostfile.ParseLines(lines)
	if err != nil {
		return hosts.Reach{}, fmt.Errorf("record of job %s: %w", r.Job, err)
	}
	return hosts.Reach{Hosts: parsed, Via: r.over(like), Slurm: r.Slurm, AcceptNewHostKeys: like.AcceptNewHostKeys}, nil
}

// over returns the command by which plx connects to the job's hosts, or "" for
// SSH. A record that this machine saved at launch contains the command. A
// record found by asking the hosts does not, so over returns the user's
// current option.
func (r *Record) over(like hosts.Reach) string {
	if r.found {
		return like.Via
	}
	return r.Via
}

// refreshTime bounds the request for a job's current hosts. If no reply comes
// in this time, the command uses the hosts in the record.
const refreshTime = 10 * time.Second

// refreshed returns the job with its current hosts. If another machine has
// scaled a detached job, this machine's record is out of date. Therefore
// refreshed asks the agent that drives (controls) the job for the hosts.
func (j *Job) refreshed(ctx context.Context, like hosts.Reach) (*Job, error) {
	if !j.movable() || j.Verdict != nil {
		return j, nil
	}
	bounded, cancel := within(ctx, refreshTime)
	defer cancel()
	state, err := j.chief().State(bounded)
	if err != nil {
		return j, nil // no error: a command that needs this host will report the error itself
	}
	before := j.Laid
	if err := j.learn(state); err != nil {
		j.printer.Error(err)
	}
	if j.Laid == before {
		return j, nil
	}
	j.close()
	return open(ctx, j.Record, j.printer, like)
}

// movable reports whether the job's hosts may change without an update of this
// machine's record. This is so only for a detached job: for other jobs, the
// plx launch process updates the record.
func (r *Record) movable() bool { return r.Detached && !r.Embedded && !r.found }

// learn copies the job's verdict (how it ended) from an agent's state into the
// record, and for a detached job also its current hosts. For other jobs, plx
// launch records the hosts. learn saves the record unless the record was built
// from a search of hosts.
func (r *Record) learn(state protocol.State) (err error) {
	laid := false
	if state.Layout != nil && r.movable() {
		if laid, err = r.lay(*state.Layout); err != nil {
			err = fmt.Errorf("job %s: its new hosts were not recorded: %w", r.Job, err)
		}
	}
	if state.Verdict != nil {
		r.Verdict = state.Verdict
	}
	if r.found || !laid && state.Verdict == nil {
		return err
	}
	return errors.Join(err, r.Save())
}

// lay replaces the record's hosts by those of the layout (a job's hosts and
// their tasks) if the layout is newer. It reports whether it did so. On an
// error the record does not change. A known host keeps its line from the hosts
// file, by which this machine reaches the host. A host that left the job stays
// in the record, because it stores logs.
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
			continue // the host has left the job and joined again: only its last entry counts
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
		return false, fmt.Errorf("the new layout lacks host %q", h.Line)
	}
	if _, err := next.reach(hosts.Reach{}); err != nil {
		return false, err
	}
	*r = next
	return true, nil
}

// laidHost returns the record of host h of a layout (a job's hosts and their
// tasks). old is the host's previous record; it is the zero value for a new
// host.
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
