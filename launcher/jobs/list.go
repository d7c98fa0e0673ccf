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

// row is one job of the list.
type row struct {
	Job     string    `json:"job"` // id
	Name    string    `json:"name,omitempty"`
	Program string    `json:"program"`
	Created time.Time `json:"created"`
	Hosts   int       `json:"hosts"`             // number of hosts
	Tasks   int       `json:"tasks"`             // number of tasks
	State   string    `json:"state"`             // pending or starting (in Slurm's queue), running, done, failed, hung, stopped, lost (its hosts know nothing of it), unknown
	Seconds float64   `json:"seconds,omitempty"` // from the launch to the end, or until now; 0: not known
	Code    *int      `json:"code,omitempty"`    // the job's exit status; nil: no verdict is known
	Reason  string    `json:"reason,omitempty"`
	// Generation is the number of the last generation that is known; 0: the first.
	Generation int `json:"generation,omitempty"`
}

// Choice is which jobs List prints.
type Choice struct {
	Running bool // those that have not ended, for all that is known
	Newest  int  // at most so many, the newest; 0: all
}

// of returns the rows of the choice. The newest stand at the end.
func (c Choice) of(rows []row) []row {
	if c.Running {
		rows = slices.DeleteFunc(rows, func(r row) bool { return r.Code != nil || r.State == "lost" })
	}
	return rows[len(rows)-c.least(len(rows)):]
}

// least returns how many of the newest jobs are enough.
func (c Choice) least(n int) int {
	if c.Newest == 0 {
		return n
	}
	return min(n, c.Newest)
}

// List prints the jobs that this machine launched, or that are found on the hosts of
// the query, as far as they are chosen. The oldest comes first. If hosts are out of reach it
// prints what the others know, and returns an error.
func List(ctx context.Context, q Query, c Choice, asJSON bool) error {
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
		rs = rs[len(rs)-c.least(len(rs)):] // the others' hosts need not be asked
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
		printer.Printf("this machine has launched no jobs, or plx prune has forgotten them; --hosts FILE looks on hosts")
	}
	return cmp.Or(err, unreached)
}

// describe returns a row for each job, and for each submission that is shown. The oldest comes
// first.
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
	g.Wait() // the functions return nil
	rows = slices.DeleteFunc(rows, func(r row) bool { return r.Job == "" })
	slices.SortStableFunc(rows, func(a, b row) int { return a.Created.Compare(b.Created) })
	return rows
}

// newRow describes a job. If the record has no verdict it asks the job's host, and learns what
// that knows.
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
	case errors.Is(err, hosts.ErrForgotten):
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

// took notes how long the job took until ended. The job may have been driven by a host
// whose clock goes wrong.
func (r *row) took(ended time.Time) {
	r.Seconds = max(0, ended.Sub(r.Created).Round(time.Millisecond).Seconds())
}

// jobColumns are the columns that a list of many jobs leaves out, in this order, so that each
// job is one line of a terminal: plx status has what they tell.
var jobColumns = []string{"REASON", "STARTED", "TASKS", "HOSTS", "TOOK", "CODE"}

// printRows prints a table of jobs, without columns of spare that have no room. Why nothing is
// known of a job stands below it.
func printRows(t console.Terminal, printer *console.Printer, rows []row, spare ...string) error {
	table := console.NewTable("JOB", "STARTED", "TOOK", "HOSTS", "TASKS", "STATE", "CODE", "REASON")
	table.Level, table.Spare = jobLevel, spare
	unknown := map[string][]string{} // jobs, by the reason
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

// jobLevel colours the state of a job.
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
