package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/submission"
	"github.com/plx-run/plx/logs/style"
)

// row is one job in the output of plx jobs.
type row struct {
	Job     string    `json:"job"` // the job's id
	Name    string    `json:"name,omitempty"`
	Program string    `json:"program"`
	Created time.Time `json:"created"`
	Hosts   int       `json:"hosts"`             // number of hosts
	Tasks   int       `json:"tasks"`             // number of tasks
	State   string    `json:"state"`             // "pending" or "starting" (in Slurm's queue), "running", "done", "failed", "hung", "stopped", "lost" (its hosts have no files of it), or "unknown"
	Seconds float64   `json:"seconds,omitempty"` // duration of the job in seconds, until now if the job runs; 0 if not known
	Code    *int      `json:"code,omitempty"`    // exit status of the job; nil if the job runs or its end is not known
	Reason  string    `json:"reason,omitempty"`
	// Generation is the number of the last generation (run of all tasks) that
	// plx knows. 0 is the first.
	Generation int `json:"generation,omitempty"`
}

// ListFilter selects which jobs List prints.
type ListFilter struct {
	Running bool // only jobs that have not ended, as far as plx knows
	Newest  int  // maximum number of jobs, counted from the newest; 0 means no limit
}

// of returns the rows that the filter selects, in the order of rows. rows must
// be ordered from the oldest job to the newest.
func (c ListFilter) of(rows []row) []row {
	if c.Running {
		rows = slices.DeleteFunc(rows, func(r row) bool { return r.Code != nil || r.State == "lost" })
	}
	return rows[len(rows)-c.least(len(rows)):]
}

// least returns how many of n jobs the filter selects at most.
func (c ListFilter) least(n int) int {
	if c.Newest == 0 {
		return n
	}
	return min(n, c.Newest)
}

// List prints the jobs that the filter c selects, the oldest first. It looks
// at the jobs that this machine launched, or with q.OnHosts at those on the
// query's hosts. If some hosts cannot be reached, List prints the jobs of the
// other hosts and returns an error.
func List(ctx context.Context, q Query, c ListFilter, asJSON bool) error {
	printer := q.printer()
	var rs []Record
	var queued []submission.Submission
	var err, unreached error
	if q.OnHosts {
		rs, unreached = search(ctx, q.Reach, printer)
	} else if rs, err = Records(); err == nil {
		queued, err = submission.All()
	}
	if err = cmp.Or(context.Cause(ctx), err); err != nil {
		return err
	}
	known := len(rs) + len(queued)
	if c.Running {
		rs = slices.DeleteFunc(rs, func(r Record) bool { return r.Verdict != nil })
	} else {
		slices.SortStableFunc(rs, func(a, b Record) int { return a.Created.Compare(b.Created) })
		rs = rs[len(rs)-c.least(len(rs)):] // drop older jobs before describe asks their hosts
	}
	rows := c.of(describe(ctx, rs, queued, printer))
	if asJSON {
		err = json.NewEncoder(q.Terminal.JSON()).Encode(rows)
	} else if len(rows) > 0 {
		err = printRows(q.Terminal, printer, rows, jobColumns...)
	}
	switch {
	case len(rows) > 0 || unreached != nil:
	case c.Running && known > 0:
		printer.Printf("no job is running")
	case q.OnHosts:
		printer.Printf("there are no jobs on these hosts")
	default:
		printer.Printf("this machine has launched no jobs, or plx prune has removed their records; --hosts FILE searches hosts for jobs")
	}
	return cmp.Or(err, unreached)
}

// describe returns a row for each job, the oldest first. A Slurm submission (a
// script in Slurm's queue) that waits, or that ended without a job, also gets
// a row.
func describe(ctx context.Context, rs []Record, queued []submission.Submission, printer *console.Printer) []row {
	rows := make([]row, len(rs)+len(queued))
	var g errgroup.Group
	g.SetLimit(hosts.FanOut)
	for i, r := range rs {
		g.Go(func() error {
			rows[i] = newRow(ctx, &r, printer, r.dialling(printer))
			return nil
		})
	}
	for i := range queued {
		g.Go(func() error {
			if r, shown := (submitted{&queued[i]}).row(ctx); shown {
				rows[len(rs)+i] = r
			}
			return nil
		})
	}
	g.Wait() // the error is ignored: the functions return nil
	rows = slices.DeleteFunc(rows, func(r row) bool { return r.Job == "" })
	slices.SortStableFunc(rows, func(a, b row) int { return a.Created.Compare(b.Created) })
	return rows
}

// newRow returns the row of a job. If the record has no verdict (result of an
// ended job), newRow requests the job's state from its host and copies it into
// the record.
func newRow(ctx context.Context, r *Record, printer *console.Printer, ask asker) row {
	generation, err := r.update(ctx, printer, ask)
	out := row{Job: r.Job, Name: r.Name, Program: r.Program, Created: r.Created, State: "running", Generation: generation}
	for _, h := range r.Hosts {
		if !h.Left {
			out.Hosts++
			out.Tasks += len(h.Tasks)
		}
	}
	switch {
	case errors.Is(err, hosts.ErrNoState):
		out.State, out.Reason = "lost", err.Error()
	case err != nil:
		out.State, out.Reason = "unknown", err.Error()
	case r.Verdict != nil:
		out.State, out.Code, out.Reason, out.Generation = "done", &r.Verdict.Code, r.Verdict.Reason, r.Verdict.Generation
		switch {
		case r.Verdict.Stopped():
			out.State = "stopped"
		case r.Verdict.Hang != nil:
			out.State = "hung"
		case r.Verdict.Code != 0:
			out.State = "failed"
		}
		out.took(r.Verdict.Ended)
	default:
		out.took(time.Now())
	}
	return out
}

// took sets the job's duration, from its launch until ended. The duration is
// never negative, although the clock of the host that reports the end may be
// behind this machine's clock.
func (r *row) took(ended time.Time) {
	r.Seconds = max(0, ended.Sub(r.Created).Round(time.Millisecond).Seconds())
}

// jobColumns are the columns that plx jobs may drop. It drops them in this
// order until each job fits on one line of the terminal. plx status shows the
// dropped values.
var jobColumns = []string{"REASON", "STARTED", "TASKS", "HOSTS", "TOOK", "CODE"}

// printRows prints a table of jobs. If the terminal is too narrow, it drops
// the columns in spare, in this order. Below the table it prints why the state
// of some jobs is not known.
func printRows(t console.Terminal, printer *console.Printer, rows []row, spare ...string) error {
	table := console.NewTable("JOB", "STARTED", "TOOK", "HOSTS", "TASKS", "STATE", "CODE", "REASON")
	table.Level, table.Spare = jobLevel, spare
	unknown := map[string][]string{} // ids of jobs without a known state, by the reason why it is not known
	for _, r := range rows {
		if r.Code == nil && r.Reason != "" {
			unknown[r.Reason] = append(unknown[r.Reason], r.Job)
			r.Reason = ""
		}
		code := ""
		if r.Code != nil {
			code = strconv.Itoa(*r.Code)
		} else if r.Generation > 0 {
			r.State = fmt.Sprintf("%s, generation %d", r.State, r.Generation)
		}
		took := ""
		if r.Seconds > 0 {
			took = time.Duration(r.Seconds * float64(time.Second)).Round(time.Second).String()
		}
		table.Row(r.Job, r.Created.Local().Format("2006-01-02 15:04:05"), took, strconv.Itoa(r.Hosts), strconv.Itoa(r.Tasks), r.State, code, r.Reason)
	}
	err := table.Write(t)
	for _, why := range slices.Sorted(maps.Keys(unknown)) {
		printer.Report(style.Bad, "job %s: %s", console.Names(unknown[why], 0), why)
	}
	return err
}

// jobLevel returns the colour for a cell of the column STATE: good, bad or
// doubtful.
func jobLevel(column, cell string) style.Level {
	if column != "STATE" {
		return style.Plain
	}
	state, _, _ := strings.Cut(cell, ",")
	switch state {
	case "done":
		return style.Good
	case "failed", "hung", "lost":
		return style.Bad
	case "stopped", "unknown":
		return style.Doubtful
	}
	return style.Plain
}
