package jobs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/submission"
)

// candidates are what a query may mean.
type candidates struct {
	jobs     []Record
	queued   []submission.Submission
	starting []Launching
	known    bool // this machine has a record of the named job, which may have ended
}

// meant returns the query for the job that a command ends or changes. Without a name that is
// the only job that runs, if none starts. Under a name one job at most may run or start. Else
// meant lists all of them and refuses: the newest may be another one than the user thinks of.
func (q Query) meant(ctx context.Context, command string) (Query, error) {
	var c candidates
	var err error
	if !q.OnHosts {
		if c, err = q.local(); err != nil || q.Job != "" && len(c.jobs)+len(c.queued)+len(c.starting) == 1 {
			return q, err
		}
	}
	rows := q.alive(ctx, c)
	if q.OnHosts || len(rows) == 0 && len(q.Reach.Hosts) > 0 && !c.known {
		if q.looked, err = q.ask(ctx); err != nil {
			return q, err
		}
		c = candidates{jobs: q.named(q.looked)}
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

// ask returns the jobs that the query's hosts know. Without a name every host has to answer: a
// silent one may run another job.
func (q Query) ask(ctx context.Context) ([]Record, error) {
	if q.Job != "" {
		return q.searchSome(ctx, q.printer())
	}
	rs, err := search(ctx, q.Reach, q.printer())
	if err != nil && exit.Hint(err) == "" {
		err = exit.WithHint(err, "a host that gives no answer may run another job: name the one that you mean")
	}
	return rs, err
}

// local returns what the query may mean of the jobs, submissions and launches of this machine
// that are not known to have ended. An id means its job or submission only.
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

// named returns those of rs that have the query's name; without a name, all.
func (q Query) named(rs []Record) []Record {
	if q.Job == "" {
		return rs
	}
	all, _ := matching(rs, q.Job, Record.identity)
	return all
}

// newJob is the age up to which a job of which its hosts know nothing may still start there.
const newJob = 5 * time.Minute

// alive describes those of c that run or start, or that may because nobody answers for them.
func (q Query) alive(ctx context.Context, c candidates) (rows []row) {
	for i := range c.queued {
		s := submitted{&c.queued[i]}
		if r, shown := s.row(ctx); shown {
			rows = append(rows, r)
			c.jobs = slices.DeleteFunc(slices.Clone(c.jobs), s.launched) // an earlier run of the script
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

// runs reports whether the job runs for all that is known.
func (r row) runs() bool { return r.State == "running" || r.State == "unknown" }

// refuse lists what the user may mean.
func (q Query) refuse(command string, rows []row) error {
	t := q.Terminal
	t.Stdout, t.StdoutColour = t.Stderr, t.StderrColour // the list belongs to an error
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
	return exit.Mistake(fmt.Errorf("%s %s: nothing is done: any of the jobs above may be meant: %d running, %d starting", command, what, running, len(rows)-running),
		"%s JOB, with the id of one of them", command)
}
