package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/slurm"
	"github.com/plx-run/plx/launcher/submission"
	"github.com/plx-run/plx/logs"
)

// submitted is a job script that was submitted to Slurm. Each time that Slurm
// runs the script, the script launches one job of plx.
type submitted struct{ *submission.Submission }

// run returns the record of one plx job that the script has launched. The
// parameter restarts says which: it is how often Slurm had restarted the
// script before. run returns false if there is no such record.
func (s submitted) run(restarts int) (Record, bool) {
	r, found := byID(submission.RunID(s.Job, restarts))
	return r, found && s.launched(r)
}

// launched reports whether this submission launched the job of record r.
func (s submitted) launched(r Record) bool {
	return r.Slurm.ID == s.Slurm && r.Job == submission.RunID(s.Job, r.Slurm.Restarts)
}

// last returns the record (this machine's file) of the newest plx job that the
// submission has launched. It ignores jobs after more than the given number of
// restarts by Slurm.
func (s submitted) last(restarts int) (Record, bool) {
	for ; restarts >= 0; restarts-- {
		if r, found := s.run(restarts); found {
			return r, true
		}
	}
	return Record{}, false
}

// present returns the record (this machine's file) of the plx job that Slurm
// runs now. If the submission has ended, it returns the record of its last
// job.
func (s submitted) present(state slurm.State) (Record, bool) {
	if state.Over() {
		return s.last(state.Restarts)
	}
	return s.run(state.Restarts)
}

// submissionOf returns the Slurm submission (job script) that the query means.
// It returns nil if the query means a job that was not submitted to Slurm by
// plx. If the query names no job, submissionOf returns the newest submission
// that has not ended.
func submissionOf(ctx context.Context, q Query) (*submitted, error) {
	if q.OnHosts {
		return nil, nil
	}
	all, err := submission.All()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	rs, err := Records()
	if err != nil {
		return nil, err
	}
	s := matchSubmission(all, q.Job)
	if q.Job == "" {
		s = newestQueued(ctx, all)
	}
	if s == nil {
		return nil, nil
	}
	another := func(r Record) bool { // another reports whether the query also matches job r, although the submission did not launch that job
		matches := q.Job == "" || r.Name == q.Job || r.Job == q.Job
		alike := s.Job != q.Job && s.Name != q.Job && strings.HasPrefix(r.Job, q.Job)
		return !s.launched(r) && (matches && r.Created.After(s.Created) || alike)
	}
	if slices.ContainsFunc(rs, another) {
		return nil, nil
	}
	return s, nil
}

// matchSubmission selects a submission by id, name or beginning of an id, in
// the same way as the function match. all is ordered from the oldest
// submission to the newest.
func matchSubmission(all []submission.Submission, text string) *submitted {
	found, named := matching(all, text, func(s submission.Submission) (id, name string) { return s.Job, s.Name })
	if len(found) == 1 || len(found) > 1 && named {
		return &submitted{&found[len(found)-1]}
	}
	return nil
}

// newestQueued returns the newest submission (a job script that was passed to
// Slurm) that has not ended according to Slurm, or nil.
func newestQueued(ctx context.Context, all []submission.Submission) *submitted {
	for i := range slices.Backward(all) {
		if all[i].Over != nil {
			continue
		}
		if state, err := all[i].Ask(ctx); err == nil && !state.Over() && !state.Completing() {
			return &submitted{&all[i]}
		}
	}
	return nil
}

// Polling intervals for the start of a submitted job. filePause is for the
// job's files in this home directory. For requests to Slurm, the interval
// starts at firstPause and doubles up to lastPause. It becomes long because a
// job may wait for days and Slurm serves all users of the cluster.
const (
	filePause  = 200 * time.Millisecond
	firstPause = time.Second
	lastPause  = 10 * time.Second
)

// await waits until Slurm runs the submission and the submitted script has
// launched its plx job. It returns the job's record. Slurm may restart the
// script; await ignores launches after fewer than least restarts. While it
// waits, it prints the reason that Slurm gives.
func (s submitted) await(ctx context.Context, least int, printer *console.Printer) (Record, error) {
	said := ""
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		state, err := s.Ask(ctx)
		if err != nil {
			return Record{}, err
		}
		if state.Over() {
			if r, found := s.last(state.Restarts); found && r.Slurm.Restarts >= least {
				return r, nil
			}
			return Record{}, s.NotStartedError(state)
		}
		restarts := max(state.Restarts, least)
		_, begun := s.run(restarts)
		unexplained := state.Queued() && state.Reason == "" && pause == firstPause // true if Slurm has just accepted the job and gives no reason yet why it waits
		if text := s.Waiting(state); text != said && !begun && !unexplained {
			said = text
			printer.Printf("job %s: %s", s.Job, text)
		}
		if r, err := s.watch(ctx, restarts, pause); err != nil || r.Job != "" {
			return r, err
		}
	}
}

// watch waits at most limit for the record (this machine's file) of a job
// whose agents have started. If none appears in this time, it returns a zero
// Record and no error.
func (s submitted) watch(ctx context.Context, restarts int, limit time.Duration) (Record, error) {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		if r, begun := s.run(restarts); begun && r.started() {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return Record{}, context.Cause(ctx)
		case <-time.After(filePause):
		}
	}
	return Record{}, nil
}

// Follow follows a submission (a job script that was passed to Slurm) as
// Attach does. Unlike Attach, it prints all log lines from the first one.
func Follow(ctx context.Context, s *submission.Submission, q Query, shown logs.Options) (int, error) {
	return submitted{s}.follow(ctx, q, shown, -1)
}

// follow attaches to the plx job that the submission has launched. If Slurm
// runs the submitted script again, follow attaches to the job of that run.
func (s submitted) follow(ctx context.Context, q Query, shown logs.Options, lines int) (int, error) {
	printer := q.printer()
	for least := 0; ; lines = -1 {
		r, err := s.await(ctx, least, printer)
		if err != nil {
			return exit.Code(err), err
		}
		least = r.Slurm.Restarts + 1
		code, err := attach(ctx, q.exactly(r.Job), shown, lines)
		if code == 0 || ctx.Err() != nil {
			return code, err
		}
		again, unknown := s.Requeued(ctx, r.Slurm.Restarts)
		if !again {
			return code, errors.Join(err, unknown)
		}
		if err != nil {
			printer.Error(err)
		}
		printer.Printf("job %s: Slurm has requeued it, as job %s", r.Job, submission.RunID(s.Job, least))
	}
}

// awaitLaunched returns a query for a job that has been launched. If q means a
// submission (a job script in Slurm's queue), awaitLaunched waits until the
// submission launches a job. If newest is false and q.Job is the id of a
// launched job, the returned query means exactly that job. If newest is true,
// it means the newest job of the submission.
func awaitLaunched(ctx context.Context, q Query, newest bool) (Query, error) {
	if q.Job != "" && !newest {
		if _, found := byID(q.Job); found {
			return q.exactly(q.Job), nil
		}
	}
	s, err := submissionOf(ctx, q)
	if s == nil || err != nil {
		return q, err
	}
	r, err := s.await(ctx, 0, q.printer())
	return q.exactly(r.Job), err
}

// alreadyLaunched returns a query for the newest plx job that the Slurm
// submission of q has launched. If the submission has launched no job, the
// error says what it waits for or how it ended.
func alreadyLaunched(ctx context.Context, q Query) (Query, error) {
	if q.exact {
		return q, nil
	}
	s, err := submissionOf(ctx, q)
	if s == nil || err != nil {
		return q, err
	}
	state, err := s.Ask(ctx)
	if err != nil {
		return q, err
	}
	if r, found := s.last(state.Restarts); found {
		return q.exactly(r.Job), nil
	}
	if state.Over() {
		return q, s.NotStartedError(state)
	}
	return q, exit.WithHint(fmt.Errorf("job %s: its tasks have not begun: %s", s.Job, s.Waiting(state)), "plx attach waits for it, plx stop cancels it")
}

// row returns the submission's row in the list that the command plx jobs
// prints. shown is false if the submission has launched a job, because the
// list has a row for that job.
func (s submitted) row(ctx context.Context) (out row, shown bool) {
	out = row{Job: s.Job, Name: s.Name, Program: s.Program, Created: s.Created, State: "pending"}
	state, err := s.Ask(ctx)
	_, launched := s.present(state)
	switch {
	case err == nil && launched && !state.Queued():
		return out, false
	case err != nil:
		out.State, out.Reason = "unknown", err.Error()
	case state.Over():
		code := exit.Code(s.NotStartedError(state))
		out.State, out.Code, out.Reason = "failed", &code, fmt.Sprintf("job %s of Slurm: %s", s.Slurm, state.Ending())
		if code == submission.CodeStopped {
			out.State = "stopped"
		}
	default:
		if out.Hosts, out.Reason = state.Nodes, s.Waiting(state); !state.Queued() {
			out.State = "starting"
		}
		if _, before := s.last(state.Restarts); before {
			out.Job = submission.RunID(s.Job, max(state.Restarts, 1))
		}
	}
	return out, true
}

// unqueue cancels the submission (a job script in Slurm's queue) of q and
// returns done = true, if no plx job of it runs. This is so if the script has
// launched no job yet, or none since Slurm requeued it. If a job may run,
// unqueue returns a query for that job, which the caller stops.
func unqueue(ctx context.Context, q Query) (job Query, done bool, err error) {
	s, err := submissionOf(ctx, q)
	if s == nil || err != nil {
		return q, false, err
	}
	state, err := s.Ask(ctx)
	if err != nil {
		return q, false, err
	}
	r, launched := s.present(state)
	printer := q.printer()
	switch {
	case state.Over() && !launched:
		printer.Printf("job %s: had ended already: job %s of Slurm: %s", s.Job, s.Slurm, state.Ending())
		return q, true, nil
	case launched && !state.Queued():
		return q.exactly(r.Job), false, nil
	}
	if err := s.Cancel(ctx); err != nil {
		return q, true, err
	}
	printer.Printf("job %s: stopped before its tasks began: job %s of Slurm is cancelled", s.Job, s.Slurm)
	return q, true, nil
}
