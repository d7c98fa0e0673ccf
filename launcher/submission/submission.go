// Package submission records launches that were submitted to Slurm, and asks
// Slurm for their state.
//
//	all, err := submission.All()
//	state, err := all[0].Ask(ctx)
//	if state.Waits() {
//		fmt.Println(all[0].Waiting(state)) // job 12 of Slurm is pending (Resources)
//	}
//
// A submission is stored in the file ~/.plx/jobs/<job>/submission.json. Slurm
// runs the batch script, and with it plx launch, on the first node; that
// launch uses the same job id. If Slurm requeues the script, plx launch runs
// again, and the id of its job is given by [RunID]. The file folders.go lists,
// reads and writes the job directories, also for package jobs.
//
// # What this package does not do
//
// It does not follow running jobs: package jobs does that and reads their
// records. It does not submit to Slurm: package submit does.
package submission

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/slurm"
)

// Submission is a launch that was submitted to Slurm as a batch job.
type Submission struct {
	Job     string       `json:"job"`            // id of the job in plx (not in Slurm)
	Name    string       `json:"name,omitempty"` // job name from the user; "" if the user gave none
	Program string       `json:"program"`        // base name of the program's file
	Created time.Time    `json:"created"`
	Slurm   string       `json:"slurm"`          // id of the Slurm job
	Output  string       `json:"output"`         // path of the file that receives the batch script's output
	Over    *slurm.State `json:"over,omitempty"` // final state of the Slurm job; nil until it is known to have ended
}

// RunID returns the id of the plx job that a submission launches. Slurm has
// requeued the submission restarts times, and each run has an id of its own.
func RunID(job string, restarts int) string {
	if restarts == 0 {
		return job
	}
	return fmt.Sprintf("%s-r%d", job, restarts)
}

// Names of the files in a submission's directory.
const (
	file = "submission.json"
	// EnvironmentFile contains the tasks' environment variables. They are not
	// in the batch script, because Slurm administrators can read scripts. The
	// file is removed when the Slurm job is over.
	EnvironmentFile = "environment"
)

// Folder returns the path of the submission's directory.
func (s *Submission) Folder() (string, error) {
	jobs, err := Root()
	return filepath.Join(jobs, s.Job), err
}

// Make creates the submission's directory. If environ is not empty, Make
// writes the variables to EnvironmentFile in that directory.
func (s *Submission) Make(environ []string) error {
	for _, v := range environ {
		if name, value, _ := strings.Cut(v, "="); strings.ContainsAny(value, "\r\n") {
			return exit.Mistake(fmt.Errorf("--env %s: its value has several lines, which plx launch --slurm cannot pass on", name), "write the value into a file that the program reads")
		}
	}
	dir, err := s.Folder()
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil || len(environ) == 0 {
		return err
	}
	return os.WriteFile(filepath.Join(dir, EnvironmentFile), []byte(strings.Join(environ, "\n")+"\n"), 0o600)
}

// Remove deletes the submission's directory.
func (s *Submission) Remove() error {
	dir, err := s.Folder()
	if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// Record stores the Slurm job's id and the path of its output in the
// submission, and saves the submission.
func (s *Submission) Record(id, output string) error {
	s.Slurm, s.Output = id, output
	if err := Write(s.Job, file, s); err != nil {
		return fmt.Errorf("record job %s, which is job %s of Slurm: %w", s.Job, s.Slurm, err)
	}
	return nil
}

// All returns all submissions in this home directory, the oldest first. It
// skips files that it cannot read, such as those of another plx version or of
// a half-deleted job.
func All() ([]Submission, error) {
	jobs, err := Folders()
	var all []Submission
	for _, job := range jobs {
		if s, found := Of(job); found {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Submission) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Job, b.Job)) })
	return all, err
}

// Of returns the submission whose plx job has the id job. found is false if no
// such submission exists.
func Of(job string) (s Submission, found bool) {
	err := Read(job, file, &s)
	return s, err == nil && s.Job == job
}

// Ask asks Slurm for the state of the submission's Slurm job. If that job is
// over, Ask saves the final state and deletes EnvironmentFile.
func (s *Submission) Ask(ctx context.Context) (slurm.State, error) {
	if s.Over != nil {
		return *s.Over, nil // use the saved state, as Slurm deletes the records of old jobs
	}
	state, err := slurm.GetState(ctx, s.Slurm)
	if err != nil {
		return state, fmt.Errorf("job %s: job %s of Slurm: %w", s.Job, s.Slurm, err)
	}
	s.Output = cmp.Or(state.Output, s.Output)
	if !state.Over() {
		return state, nil
	}
	s.Over = &state
	dir, err := s.Folder()
	if err == nil {
		err = os.Remove(filepath.Join(dir, EnvironmentFile))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return state, err
	}
	return state, Write(s.Job, file, s)
}

// settleTime limits how long plx waits until Slurm reports that a job has
// ended or was requeued. Slurm's KillWait and epilog scripts may take a while.
const settleTime = 2 * time.Minute

// askPause is the interval at which plx polls Slurm for a job that is ending.
const askPause = time.Second

// Requeued reports whether Slurm has requeued the job. The parameter restarts
// is how often Slurm had requeued it before the run that has just ended.
// Requeued waits until Slurm has decided.
func (s *Submission) Requeued(ctx context.Context, restarts int) (bool, error) {
	again := func(state slurm.State) bool { return state.Restarts > restarts || state.Queued() }
	state, err := s.until(ctx, func(state slurm.State) bool { return state.Over() || again(state) })
	return err == nil && !state.Over() && again(state), err
}

// Finished waits until the Slurm job is over, and returns an error if it
// failed. The Slurm job may run longer than the plx job: plx in the batch
// script may still have to fetch files, for example.
func (s *Submission) Finished(ctx context.Context) error {
	for {
		state, err := s.until(ctx, slurm.State.Over)
		switch {
		case err != nil:
			return err
		case state.Over() && state.Name != "COMPLETED" && state.Name != slurm.Forgotten:
			return exit.WithCode(fmt.Errorf("job %s: after its tasks, job %s of Slurm ended: %s: %s", s.Job, s.Slurm, state.Ending(), s.complaint()), cmp.Or(state.Code, exit.CodePlx))
		case state.Over():
			return nil
		}
	}
}

// until polls Slurm until the function wanted returns true for the job's
// state, or settleTime has passed. It returns the last state.
func (s *Submission) until(ctx context.Context, wanted func(slurm.State) bool) (slurm.State, error) {
	for end := time.Now().Add(settleTime); ; {
		state, err := s.Ask(ctx)
		if err != nil || wanted(state) || time.Now().After(end) {
			return state, err
		}
		select {
		case <-ctx.Done():
			return state, context.Cause(ctx)
		case <-time.After(askPause):
		}
	}
}

// Cancel removes the Slurm job from the queue, or ends it if it runs, and
// waits until Slurm reports its end.
func (s *Submission) Cancel(ctx context.Context) error {
	err := slurm.Cancel(ctx, s.Slurm)
	if err == nil {
		var state slurm.State
		if state, err = s.until(ctx, slurm.State.Over); err == nil && !state.Over() {
			err = errors.New("it has not ended")
		}
	}
	if err != nil {
		return fmt.Errorf("job %s: cancel job %s of Slurm: %w", s.Job, s.Slurm, err)
	}
	return nil
}

// Waiting describes why a submission's tasks do not run yet: the Slurm job is
// pending, or plx has just started on its nodes.
func (s *Submission) Waiting(state slurm.State) string {
	switch {
	case !state.Queued() && !state.Completing():
		return fmt.Sprintf("job %s of Slurm has its nodes, plx starts there", s.Slurm)
	case state.Reason != "":
		return fmt.Sprintf("job %s of Slurm is pending (%s)", s.Slurm, state.Reason)
	}
	return fmt.Sprintf("job %s of Slurm is pending", s.Slurm)
}

// CodeStopped is the exit status of a job that was stopped, even if its tasks
// never started. It is the shell's status for SIGTERM, 128 + 15.
const CodeStopped = 143

// NotStartedError returns the error for a submission whose Slurm job has ended
// before plx launch recorded a job in this home directory.
func (s *Submission) NotStartedError(state slurm.State) error {
	if state.Signal == slurm.NoOutput {
		return exit.WithHint(fmt.Errorf("job %s: job %s of Slurm could not write its output, %s", s.Job, s.Slurm, s.Output), slurm.SharedHint)
	}
	if state.Name == "CANCELLED" {
		return exit.WithCode(fmt.Errorf("job %s: job %s of Slurm was cancelled before its tasks began", s.Job, s.Slurm), CodeStopped)
	}
	err := fmt.Errorf("job %s: job %s of Slurm ended before its tasks began: %s", s.Job, s.Slurm, state.Ending())
	if text := s.complaint(); text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return exit.WithCode(exit.WithHint(err, "all of its output is in "+s.Output), cmp.Or(state.Code, exit.CodePlx))
}

// complaint returns the last message, other than a hint, that plx printed in
// the batch script. It is "" if the script's output cannot be read.
func (s *Submission) complaint() (last string) {
	f, err := os.Open(s.Output)
	if err != nil {
		return ""
	}
	defer f.Close() // error ignored: the file was only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, own := strings.CutPrefix(lines.Text(), "plx: "); own && !strings.HasPrefix(text, "hint: ") {
			last = text
		}
	}
	return last
}
