package jobs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/submission"
)

// candidates has the running and ended jobs, the queued Slurm submissions, and
// the launches in progress that match a query.
type candidates struct {
	jobs     []Record
	queued   []submission.Submission
	starting []Launching
	known    bool // true if this machine has a record of a job with the query's name or id, even if the job has ended
}

// resolve returns a query for exactly the job that a command such as plx stop
// changes. If q names no job, one job must be running and none starting. If q
// has a name, at most one job of that name may be running or starting. If
// several jobs match, resolve prints them and returns an error, because the
// newest job may not be the one that the user wants.
func (q Query) resolve(ctx context.Context, command string) (Query, error) {
	var c candidates
	var err error
	if !q.OnHosts {
		if c, err = q.local(); err != nil || q.Job != "" && len(c.jobs)+len(c.queued)+len(c.starting) == 1 {
			return q, err
		}
	}
	rows := q.alive(ctx, c)
	if q.OnHosts || len(rows) == 0 && len(q.Reach.Hosts) > 0 && !c.known {
		if q.searched, err = q.ask(ctx); err != nil {
			return q, err
		}
		c = candidates{jobs: q.named(q.searched)}
		rows = q.alive(ctx, c)
	}
	switch {
	case len(rows) == 0 && q.Job == "":
		return q, noJob("running job")
	case len(rows) < 2 && q.Job != "":
		return q, nil
	case len(rows) == 1 && rows[0].runs():
		return q.exactly(rows[0].Job), nil
	}
	return q, q.refuse(command, rows)
}

// ask searches the query's hosts for jobs. If q names no job, every host must
// reply: a host that does not reply may run another job.
func (q Query) ask(ctx context.Context) ([]Record, error) {
	if q.Job != "" {
		return q.searchSome(ctx, q.printer())
	}
	rs, err := search(ctx, q.Reach, q.printer())
	if err != nil && exit.Hint(err) == "" {
		err = exit.WithHint(err, "a host that does not reply may run another job: name the job")
	}
	return rs, err
}

// local returns this machine's jobs, Slurm submissions and launches that match
// the query. It omits those that are known to have ended. If q.Job is an id,
// only the job or submission with this id matches.
func (q Query) local() (c candidates, err error) {
	rs, err := Records()
	if err != nil {
		return c, err
	}
	if c.queued, err = submission.All(); err != nil {
		return c, err
	}
	if i := slices.IndexFunc(c.queued, func(s submission.Submission) bool { return s.Job == q.Job }); i >= 0 {
		return candidates{queued: c.queued[i : i+1]}, nil
	}
	if _, found := byID(q.Job); found {
		return candidates{jobs: q.named(rs)}, nil
	}
	if c.starting, err = launchings(); err != nil {
		return c, err
	}
	other := func(name string) bool { return q.Job != "" && q.Job != name }
	c.jobs = q.named(rs)
	c.known = q.Job != "" && len(c.jobs) > 0
	c.jobs = slices.DeleteFunc(c.jobs, func(r Record) bool { return r.Verdict != nil })
	c.queued = slices.DeleteFunc(c.queued, func(s submission.Submission) bool { return s.Over != nil || other(s.Name) })
	c.starting = slices.DeleteFunc(c.starting, func(l Launching) bool { return other(l.Name) && other(l.Program) })
	return c, nil
}

// named returns the records in rs that match the query's job name or id. If
// the query has neither, named returns all records.
func (q Query) named(rs []Record) []Record {
	if q.Job == "" {
		return rs
	}
	all, _ := matching(rs, q.Job, Record.identity)
	return all
}

// newJob is the age up to which a job may still be starting. Its hosts may
// have no files of the job yet.
const newJob = 5 * time.Minute

// alive returns a row for each candidate (job or launch) that is running or
// starting. If a job's hosts do not reply, the job counts as running.
func (q Query) alive(ctx context.Context, c candidates) (rows []row) {
	for i := range c.queued {
		s := submitted{&c.queued[i]}
		if r, shown := s.row(ctx); shown {
			rows = append(rows, r)
			c.jobs = slices.DeleteFunc(slices.Clone(c.jobs), s.launched) // drop records of earlier runs of the same Slurm script
		}
	}
	rows = append(rows, describe(ctx, c.jobs, nil, q.printer())...)
	for i, r := range rows {
		if r.State == "lost" && time.Since(r.Created) < newJob {
			rows[i].State = "starting"
		}
	}
	rows = slices.DeleteFunc(rows, func(r row) bool {
		return !slices.Contains([]string{"running", "pending", "starting", "unknown"}, r.State)
	})
	for _, l := range c.starting {
		rows = append(rows, row{Job: l.label(), Name: l.Name, Program: l.Program, Created: l.Begun, State: "starting",
			Reason: fmt.Sprintf("process %d on %s launches it; SIGTERM to that process ends the launch", l.PID, l.Host)})
	}
	return rows
}

// runs reports whether the job is running, or may be running because its hosts
// do not reply.
func (r row) runs() bool { return r.State == "running" || r.State == "unknown" }

// refuse prints the jobs that match the query and returns an error that asks
// for a job's id.
func (q Query) refuse(command string, rows []row) error {
	t := q.Terminal
	t.Stdout, t.StdoutColour = t.Stderr, t.StderrColour // print the table on stderr, because it is part of an error
	if err := printRows(t, q.printer(), rows, jobColumns...); err != nil {
		return err
	}
	running := 0
	for _, r := range rows {
		if r.runs() {
			running++
		}
	}
	what := "without the name of a job"
	if q.Job != "" {
		what = q.Job
	}
	return exit.Mistake(fmt.Errorf("%s %s: did nothing, because it could mean any of the jobs above: %d running, %d starting", command, what, running, len(rows)-running),
		"%s JOB, with the id of one of these jobs", command)
}
