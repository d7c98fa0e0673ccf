package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/internal/atomicfile"
	"github.com/plx-run/plx/launcher/event"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/report"
)

// ReportConfig selects the jobs of a report, its format and its file.
type ReportConfig struct {
	Query           // Query.Job is not used
	Jobs   []string // ids or names of the jobs
	Format string   // "html", "md" or "json"
	// The path of the report's file; "-" means standard output. If it is empty, an
	// HTML report goes to a file named after the first job, and other
	// formats go to standard output.
	Output string
	Force  bool // replace an existing file even if it is not a report of plx
}

// Report writes one report on all jobs of cfg, which may be running or have
// ended. It asks a job's hosts only for data that this machine does not have
// yet. If a host does not reply, the report says so.
func Report(ctx context.Context, cfg ReportConfig) error {
	var runs []report.Run
	printer := cfg.printer()
	for _, job := range cfg.Jobs {
		q := cfg.Query
		q.Job, q.Printer = job, printer
		run, err := q.run(ctx)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(runs, func(r report.Run) bool { return r.Job == run.Job }); i >= 0 {
			return exit.Mistake(fmt.Errorf("job %s is named twice, as %s and %s", run.Job, cfg.Jobs[i], job), "plx jobs lists the jobs and their names")
		}
		runs = append(runs, run)
	}
	var page bytes.Buffer
	if err := write(&page, cfg.Format, runs); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	path := cfg.Output
	if path == "" && cfg.Format == "html" {
		path = runs[0].Job + ".html"
	}
	if path == "" || path == "-" {
		return cfg.Terminal.Text(page.String())
	}
	if err := replaceable(path, cfg.Force); err != nil {
		return err
	}
	if err := writeReport(path, page.Bytes()); err != nil {
		return err
	}
	printer.Printf("wrote %s", path)
	return nil
}

// Formats returns the names of the formats that a report can have.
func Formats() []string { return []string{"html", "md", "json"} }

func write(to io.Writer, format string, runs []report.Run) error {
	switch format {
	case "md":
		return report.Markdown(to, runs)
	case "json":
		return report.JSON(to, runs)
	}
	return report.HTML(to, runs)
}

// writeReport writes a report to the file at path. Its error names this file,
// not the temporary file that package atomicfile writes first.
func writeReport(path string, page []byte) error {
	err := atomicfile.WriteFile(path, page, 0o600)
	if err == nil {
		return nil
	}
	var open *fs.PathError
	var rename *os.LinkError
	switch {
	case errors.As(err, &open):
		err = open.Err
	case errors.As(err, &rename):
		err = rename.Err
	}
	if err = fmt.Errorf("write the report to %s: %w", path, err); missing(err) {
		return exit.WithHint(err, "its folder does not exist: mkdir -p "+filepath.Dir(path))
	}
	return err
}

// reportMark is a text that every HTML report contains. plx recognizes its own
// reports by this text.
const reportMark = `name="generator" content="plx report"`

// replaceable returns an error if the file at path exists and is not a report
// of plx, unless force is true.
func replaceable(path string, force bool) error {
	f, err := os.Open(path)
	if missing(err) || force {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	defer f.Close() // the error is ignored because f is only read
	head, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if len(head) > 0 && !bytes.Contains(head, []byte(reportMark)) {
		return exit.Mistake(fmt.Errorf("%s exists and is no report of plx", path), "name another file with -o, or replace it with --force")
	}
	return nil
}

// run collects everything that plx knows about the query's job, for a report.
func (q Query) run(ctx context.Context) (run report.Run, err error) {
	q, err = alreadyLaunched(ctx, q)
	if err != nil {
		return run, err
	}
	r, err := q.Find(ctx, false, q.Printer)
	if err != nil {
		return run, err
	}
	known := readRunData(r.Job)
	var unknown error // why plx cannot say whether the job runs; nil if it can
	if r.found || known == nil || !known.Whole || r.Verdict == nil {
		known, unknown, err = q.refresh(ctx, &r, known)
	}
	if ctx.Err() != nil {
		return run, context.Cause(ctx)
	}
	state := newRow(ctx, &r, q.Printer, func(context.Context) (protocol.State, error) { return protocol.State{}, unknown }).State
	run = report.Run{Job: r.Job, Name: r.Name, Created: r.Created, State: state, AsOf: time.Now().UTC(), Plan: r.Plan}
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			run.Missing = append(run.Missing, strings.TrimSpace(line))
		}
	}
	addVerdict(&run, r.Verdict)
	if noted, found := launched(r.Job); found {
		run.Command = noted.Command
		for _, f := range noted.Facts {
			run.Facts = append(run.Facts, report.Fact{Name: f.Name, Value: f.Value})
		}
	} else {
		run.Facts = append(run.Facts, report.Fact{Name: "program", Value: r.Program})
		run.Missing = append(run.Missing, "command and versions: an older plx, or one on another machine, launched the job")
	}
	if path := diff(r.Job); path != "" {
		run.Facts = append(run.Facts, report.Fact{Name: "git diff", Value: path})
	}
	own, failed := events(r.Job)
	if failed != nil {
		run.Missing = append(run.Missing, "events: "+failed.Error())
	}
	if known != nil {
		known.add(&run, &own)
	}
	run.Events = append(run.Events, eventsOf(own)...)
	slices.SortStableFunc(run.Events, func(a, b report.Event) int { return a.Time.Compare(b.Time) })
	return run, nil
}

// refresh asks the hosts whether the job has ended, and then for their stored
// data. unknown is the error of the first request, err that of the second. If
// no host replies to the second, refresh returns the parameter before, the
// data that this machine already has.
func (q Query) refresh(ctx context.Context, r *Record, before *runData) (c *runData, unknown, err error) {
	j, err := open(ctx, *r, q.Printer, q.Reach)
	if err == nil {
		j, err = j.refreshed(ctx, q.Reach)
	}
	if err != nil {
		return before, err, err
	}
	defer j.close()
	_, unknown = j.update(ctx, q.Printer, j.state)
	now, err := j.ask(ctx)
	*r = j.Record
	if before != nil && !slices.ContainsFunc(now.Hosts, func(h hostData) bool { return h.Failed == "" }) {
		return before, unknown, err
	}
	if !j.found {
		err = errors.Join(err, now.save(j.Job))
	}
	return &now, unknown, err
}

// addVerdict adds to the report how the job ended: its exit status, each task's
// end, and the last log lines.
func addVerdict(run *report.Run, v *protocol.Verdict) {
	if v == nil {
		return
	}
	run.Code, run.Verdict, run.Ended = &v.Code, v.Reason, v.Ended
	run.Details = append(run.Details, v.Notices...)
	for _, end := range v.Ends {
		line := fmt.Sprintf("%s on %s: %s", end.Task, end.Host, end.Part)
		if end.Part != protocol.Unknown && end.Part != protocol.Done {
			line += fmt.Sprintf(", exit status %d", end.Code)
		}
		if end.Cause != "" {
			line += ": " + end.Cause
		}
		run.Details = append(run.Details, line)
	}
	if v.MoreEnds > 0 {
		run.Details = append(run.Details, fmt.Sprintf("and %d more tasks", v.MoreEnds))
	}
	if v.Hang != nil {
		run.Details = append(run.Details, v.Hang.Waits...)
		run.Details = append(run.Details, v.Hang.Stack...)
	}
	if v.Saved != nil && v.Saved.Cause == "" {
		run.Details = append(run.Details, fmt.Sprintf("saved a checkpoint at step %d", v.Saved.Step))
	}
	if tail := lastLines(*v); len(tail) > 0 {
		run.Tails = append(run.Tails, report.Tail{Task: v.First.Task.String(), Host: v.Host, Lines: tail})
	}
}

// add adds the hosts' stored data to run. For a detached job, the hosts have
// stored events. add appends them to own, the list of events that this machine
// has stored.
func (c runData) add(run *report.Run, own *[]event.Event) {
	for _, h := range c.Hosts {
		if h.Failed != "" {
			run.Missing = append(run.Missing, fmt.Sprintf("host %s: %s", h.Host, h.Failed))
		}
		*own = append(*own, event.Parse(h.Events)...)
		all, damaged := histories(h.Kept)
		for _, text := range damaged {
			run.Missing = append(run.Missing, fmt.Sprintf("host %s: %s", h.Host, text))
		}
		for _, name := range slices.SortedFunc(maps.Keys(all), compareTasks) {
			task := name
			if name == protocol.OfHost {
				task = ""
			}
			for _, metric := range all[name].Names() {
				points := all[name].Points(metric)
				if metric == metrics.Checkpoint {
					run.Events = append(run.Events, checkpoints(h.Host, task, points)...)
					continue
				}
				run.Series = append(run.Series, report.Series{Name: metric, Host: h.Host, Task: task, Points: points})
			}
			if points := rates(all[name]); task != "" && len(points) > 0 {
				run.Series = append(run.Series, report.Series{Name: rateName, Host: h.Host, Task: task, Points: points})
			}
		}
	}
	for _, t := range c.Tails {
		if !slices.ContainsFunc(run.Tails, func(had report.Tail) bool { return had.Task == t.Task && had.Host == t.Host }) {
			run.Tails = append(run.Tails, report.Tail{Task: t.Task, Host: t.Host, Lines: t.Lines})
		}
	}
}

// rateName is the name of the metric that plx computes: training steps per
// second of a task.
const rateName = "steps_per_second"

// mostRates bounds the number of points in a task's curve of steps per second.
const mostRates = 200

// rates computes a task's training steps per second. It uses the steps and
// times of the metric that the task reported most often. It returns nil if the
// metrics have no steps, or if the task itself reported steps_per_second.
func rates(h *metrics.History) (all []metrics.Point) {
	var longest []metrics.Point
	for _, name := range h.Names() {
		if name == rateName {
			return nil
		}
		if points := h.Points(name); len(points) > len(longest) {
			longest = points
		}
	}
	if len(longest) < 2 {
		return nil
	}
	window := max(time.Second, longest[len(longest)-1].Time.Sub(longest[0].Time)/mostRates)
	from := longest[0]
	for _, p := range longest[1:] {
		passed := p.Time.Sub(from.Time)
		switch {
		case from.Step < 0 || p.Step < from.Step: // start a new interval: no step reported yet, or the task restarted from an older step
			from = p
		case passed >= window:
			rate := metrics.Number(float64(p.Step-from.Step) / passed.Seconds())
			all = append(all, metrics.Point{Step: p.Step, Time: p.Time, Last: rate, Min: rate, Max: rate})
			from = p
		}
	}
	return all
}

// checkpoints returns a report event for each checkpoint that a task has
// reported.
func checkpoints(host, task string, points []metrics.Point) (all []report.Event) {
	for _, p := range points {
		all = append(all, report.Event{Time: p.Time, Kind: report.Checkpoint, Host: host, Task: task, Text: fmt.Sprintf("checkpoint at step %d", int64(p.Last))})
	}
	return all
}

// eventsOf converts stored events to events of a report, each with a text for
// the reader.
func eventsOf(events []event.Event) (all []report.Event) {
	for _, e := range events {
		at, err := time.Parse(event.TimeFormat, e.Time)
		if err != nil {
			continue
		}
		one := report.Event{Time: at, Host: e.Host, Task: e.Task}
		generation := 0
		if e.Generation != nil {
			generation = *e.Generation
		}
		switch e.Event {
		case event.Start:
			one.Kind, one.Text = report.Started, "started"
			if generation > 0 {
				one.Text = fmt.Sprintf("started in generation %d", generation)
			}
		case event.Exit:
			one.Kind, one.Text = report.Exited, "exited"
			if e.Status != nil {
				one.Text = fmt.Sprintf("exited with status %d", *e.Status)
			}
			if e.Signal > 0 {
				one.Text = fmt.Sprintf("ended by signal %d, status %d", e.Signal, 128+e.Signal)
			}
		case event.Restart:
			one.Kind, one.Text = report.Restarted, fmt.Sprintf("generation %d begins on %d hosts", generation, len(e.Hosts))
		case event.Hang:
			one.Kind, one.Host, one.Task = report.Hung, e.Host, e.Culprit
			if e.Seconds != nil {
				one.Text = fmt.Sprintf("nothing moved for %gs: %s", math.Round(*e.Seconds), e.Why)
			}
		case event.Note:
			one.Kind, one.Text = report.Noted, e.Text
		case event.End:
			one.Kind, one.Text = report.Ended, e.Verdict
			if e.Error != "" {
				one.Text = strings.TrimPrefix(one.Text+"; "+e.Error, "; ")
			}
		// Skip event.Begin: it repeats the plan, which the report shows
		// elsewhere. Also skip kinds of events that only a newer plx knows.
		default:
			continue
		}
		all = append(all, one)
	}
	return all
}
