// Package submission remembers launches that were handed to Slurm, and asks Slurm what became
// of them.
//
//	all, err := submission.All()
//	state, err := all[0].Ask(ctx)
//	if state.Waits() {
//		fmt.Println(all[0].Waiting(state)) // job 12 of Slurm is pending (Resources)
//	}
//
// A submission is a file submission.json in ~/.plx/jobs/<job>. The plx that Slurm starts on the
// first node launches a job with the same id. If Slurm requeues the script it starts plx again,
// whose job has the id of [RunID]. What lies in the folders of jobs is listed, read and written by
// folders.go, also for the records of package jobs.
//
// # What it refuses to do
//
// It knows no job of plx: package jobs reads their records, and follows the jobs. It submits
// nothing: package submit does.
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

// Submission is a launch that was handed to Slurm.
type Submission struct {
	Job     string       `json:"job"`            // id of the job of plx
	Name    string       `json:"name,omitempty"` // given by the user; empty: none
	Program string       `json:"program"`        // file name
	Created time.Time    `json:"created"`
	Slurm   string       `json:"slurm"`          // id of the job of Slurm
	Output  string       `json:"output"`         // file of what the script prints
	Over    *slurm.State `json:"over,omitempty"` // how Slurm's job ended; nil: not known to have
}

// RunID is the id of what a submission launches after Slurm has requeued it so often.
func RunID(job string, restarts int) string {
	if restarts == 0 {
		return job
	}
	return fmt.Sprintf("%s-r%d", job, restarts)
}

// Files of a submission in its folder.
const (
	file = "submission.json"
	// EnvironmentFile has the variables of the tasks: administrators of Slurm can read
	// scripts. It is removed when Slurm's job is over.
	EnvironmentFile = "environment"
)

// Folder returns the path of the submission's folder.
func (s *Submission) Folder() (string, error) {
	jobs, err := Root()
	return filepath.Join(jobs, s.Job), err
}

// Make makes the submission's folder, with a file of the tasks' variables if there are any.
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

// Unmake removes what Make has made, and the submission.
func (s *Submission) Unmake() error {
	dir, err := s.Folder()
	if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// Record notes the job of Slurm and the file of its output, and saves the submission.
func (s *Submission) Record(id, output string) error {
	s.Slurm, s.Output = id, output
	if err := Write(s.Job, file, s); err != nil {
		return fmt.Errorf("record job %s, which is job %s of Slurm: %w", s.Job, s.Slurm, err)
	}
	return nil
}

// All returns all submissions of this home, the oldest first. It leaves out one that cannot be
// read: it is of another version, or half removed.
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

// Of returns the submission with the id of a job.
func Of(job string) (s Submission, found bool) {
	err := Read(job, file, &s)
	return s, err == nil && s.Job == job
}

// Ask asks Slurm for the state of its job. It notes that the job is over, and then removes the
// tasks' variables.
func (s *Submission) Ask(ctx context.Context) (slurm.State, error) {
	if s.Over != nil {
		return *s.Over, nil // Slurm forgets jobs
	}
	state, err := slurm.Ask(ctx, s.Slurm)
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

// settleTime bounds the wait until Slurm has ended what a job has left, and tells what becomes
// of the job: KillWait and an epilog may take a while.
const settleTime = 2 * time.Minute

// askPause is the time between two questions to Slurm about a job that ends.
const askPause = time.Second

// RunsAgain reports whether Slurm has requeued the job, whose run after so many restarts has
// ended. It waits until Slurm knows.
func (s *Submission) RunsAgain(ctx context.Context, restarts int) (bool, error) {
	again := func(state slurm.State) bool { return state.Restarts > restarts || state.Waits() }
	state, err := s.until(ctx, func(state slurm.State) bool { return state.Over() || again(state) })
	return err == nil && !state.Over() && again(state), err
}

// Finished waits until Slurm's job is over, for what plx does there after the verdict. It
// returns an error if that failed.
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

// until asks Slurm until its answer is as wanted, or settleTime is over.
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

// Cancel takes the job out of Slurm's queue, or ends it, and waits until Slurm has.
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

// Waiting says what a submission waits for.
func (s *Submission) Waiting(state slurm.State) string {
	switch {
	case !state.Waits() && !state.Completing():
		return fmt.Sprintf("job %s of Slurm has its nodes, plx starts there", s.Slurm)
	case state.Reason != "":
		return fmt.Sprintf("job %s of Slurm is pending (%s)", s.Slurm, state.Reason)
	}
	return fmt.Sprintf("job %s of Slurm is pending", s.Slurm)
}

// CodeStopped is the exit status of a job that was stopped, also before its tasks began: that of
// SIGTERM.
const CodeStopped = 143

// Unbegun is the error for a submission whose job of Slurm is over, and has launched nothing
// that this home knows.
func (s *Submission) Unbegun(state slurm.State) error {
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

// complaint is the last line, but for hints, that plx has printed in the script; "" if its
// output cannot be read.
func (s *Submission) complaint() (last string) {
	f, err := os.Open(s.Output)
	if err != nil {
		return ""
	}
	defer f.Close() // it is read only
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, own := strings.CutPrefix(lines.Text(), "plx: "); own && !strings.HasPrefix(text, "hint: ") {
			last = text
		}
	}
	return last
}
