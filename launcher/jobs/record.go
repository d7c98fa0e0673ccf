// Package jobs works on jobs that were launched before: it finds, lists, follows, stops
// and scales them, and removes what they left.
//
//	code, err := jobs.Attach(ctx, jobs.Query{Job: "mnist", Terminal: t})
//
// # How a job is found
//
// The machine that launched a job keeps a [Record] of it (record.go). A running
// detached job may get other hosts from another machine: the agent that drives it brings
// the record up to date. A machine without a record can look for jobs on hosts
// (query.go).
//
// # What it refuses to do
//
// It launches nothing, and it drives no job: the agent of the chief's host, or the
// launcher, does.
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

// Defaults of a launch. They also hold for a job that this machine has no record of.
const (
	// DefaultGrace is the time between asking a task to end and killing it.
	DefaultGrace = 10 * time.Second
	// DefaultLease is how long a host runs tasks without hearing the driver.
	DefaultLease = 30 * time.Second
)

// Record is what the launching machine remembers of a job, in
// ~/.plx/jobs/<job>/job.json.
type Record struct {
	Job      string    `json:"job"`            // id
	Name     string    `json:"name,omitempty"` // given by the user; empty: none
	Program  string    `json:"program"`        // file name
	Created  time.Time `json:"created"`
	Detached bool      `json:"detached,omitempty"`
	Restarts bool      `json:"restarts,omitempty"` // tasks may run on other hosts than at the launch
	Embedded bool      `json:"embedded,omitempty"` // the job's hosts are servers of the launcher's process
	Way
	Launcher int               `json:"launcher"`        // pid of the plx that launched the job, on this machine
	Grace    time.Duration     `json:"grace"`           // from telling tasks to end to killing them; 0: kill at once
	Lease    time.Duration     `json:"lease,omitempty"` // 0: DefaultLease
	Hosts    []HostRecord      `json:"hosts"`
	Chief    int               `json:"chief"`             // index into Hosts of the host that knows the verdict
	Laid     int               `json:"laid,omitempty"`    // generation of the last layout that an agent reported; 0: none has
	Verdict  *protocol.Verdict `json:"verdict,omitempty"` // how the job ended; nil: not known to have ended

	Checkpoints string `json:"checkpoints,omitempty"` // name of the job's checkpoints, under ~/.plx/ckpt on the hosts
	Saves       bool   `json:"saves,omitempty"`       // the program's arguments tell it to make checkpoints

	Outputs []protocol.Output `json:"outputs,omitempty"` // files that the job makes

	Metrics []string `json:"metrics,omitempty"` // the user's patterns for values in the output, as in protocol.Spec

	Plan []string `json:"plan,omitempty"` // where the tasks were to run at the launch, as lines of a table

	found bool // read from the hosts, not from job.json: maybe incomplete, and never saved
}

// Way is how the hosts of a Record are reached. The zero value means SSH.
type Way struct {
	Via   string    `json:"via,omitempty"`  // command that reaches the hosts; empty: none
	Slurm slurm.Run `json:"slurm,omitzero"` // job of Slurm whose nodes the hosts are; zero: none
}

// HostRecord is one host of a Record.
type HostRecord struct {
	Line   string   `json:"line"`           // the host's line of a resource file
	Folder string   `json:"folder"`         // name of the host's folder under ~/.plx/jobs/<job>/ on the host
	Binary string   `json:"binary"`         // path of the agent's program on the host, relative to the home
	Tasks  []string `json:"tasks"`          // names; of the first generation, or of the last one that is known
	Left   bool     `json:"left,omitempty"` // the host left the job; its logs may still be there
}

// CheckpointName returns the name of the job's checkpoints on its hosts. Records of
// earlier versions do not have it.
func (r *Record) CheckpointName() string { return cmp.Or(r.Checkpoints, r.Name, r.Job) }

// recordFile is the name of a record in the folder of its job.
const recordFile = "job.json"

// Save writes the record, whole or not at all.
func (r *Record) Save() error {
	if err := submission.Write(r.Job, recordFile, r); err != nil {
		return fmt.Errorf("record job %s: %w", r.Job, err)
	}
	return nil
}

// Finish notes how the job ended, and saves the record.
func (r *Record) Finish(v protocol.Verdict) error {
	if v.Ended.IsZero() {
		v.Ended = time.Now()
	}
	r.Verdict = &v
	return r.Save()
}

// Forget removes the record, and what else is in its folder unless Slurm may run its launch
// again.
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

// Records returns all records of this machine, the oldest first. It leaves out a record
// that cannot be read: it is of another version, or half removed.
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

// byID returns the record of the job with an id.
func byID(job string) (r Record, found bool) {
	err := submission.Read(job, recordFile, &r)
	return r, err == nil && r.Job == job && r.Chief >= 0 && r.Chief < len(r.Hosts)
}

func older(a, b Record) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Job, b.Job)) }

// reach returns how to reach the record's hosts. An embedded job ran on this machine: a
// new embedded cluster reaches its folders. like has what the user says about reaching hosts.
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

// over returns the command that reaches a job's hosts; empty: SSH. Who launched the job here
// said it then.
func (r *Record) over(like hosts.Reach) string {
	if r.found {
		return like.Via
	}
	return r.Via
}

// refreshTime bounds the question which hosts a job has now. Without an answer a
// command goes on with what the record says.
const refreshTime = 10 * time.Second

// refreshed returns the job with the hosts that it has now. If another machine has
// scaled a detached job, the record here is out of date, and the agent that drives the
// job knows better.
func (j *Job) refreshed(ctx context.Context, like hosts.Reach) (*Job, error) {
	if !j.movable() || j.Verdict != nil {
		return j, nil
	}
	bounded, cancel := within(ctx, refreshTime)
	defer cancel()
	state, err := j.chief().State(bounded)
	if err != nil {
		return j, nil // a command that needs the host reports the error
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

// movable reports whether the job can get other hosts while no launcher here notes
// them.
func (r *Record) movable() bool { return r.Detached && !r.Embedded && !r.found }

// learn takes over what an agent knows: the job's hosts, and how it ended. It saves the
// record if this machine has one. A job with a launcher gets its hosts from the launcher.
func (r *Record) learn(state protocol.State) (err error) {
	laid := false
	if state.Laid != nil && r.movable() {
		if laid, err = r.lay(*state.Laid); err != nil {
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
	if _, err := next.reach(hosts.Reach{}); err != nil {
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
