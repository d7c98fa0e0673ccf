package slurm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/plx-run/plx/launcher/exit"
)

// Submission describes a batch script that launches a plx job, and the options
// for sbatch.
type Submission struct {
	Name    string   // name of the Slurm job
	Dir     string   // working directory of the script, an absolute path
	Output  string   // absolute path of the script's output file; Slurm replaces %j by the Slurm job's id
	Options []string // further options of sbatch, which override plx's own
	Job     string   // id of the plx job
	Command []string // absolute path of plx, and its arguments
}

// SubmissionVariable is the environment variable in which the script of a [Submission]
// passes the id of the plx job to plx.
const SubmissionVariable = "PLX_SUBMITTED"

// Script returns the text of the batch script. Slurm runs it on the first
// node, and again if the job is requeued. The script ends with exec, so plx
// replaces the shell and receives the signals that Slurm sends.
func (s Submission) Script() string {
	return fmt.Sprintf(`#!/bin/sh
# plx launch --slurm has submitted this.
for path in %s %s; do
	[ -e "$path" ] && continue
	echo "plx: node $(hostname): there is no $path here" >&2
	echo "plx: hint: %s" >&2
	exit %d
done
cd %s || exit %d
export %s=%s
exec %s
`, quote(s.Dir), quote(s.Command[0]), SharedHint, exit.CodePlx, quote(s.Dir), exit.CodePlx, SubmissionVariable, quote(s.Job), quoted(s.Command))
}

// SharedHint is the hint for a batch job that fails because plx or the user's
// files do not exist on the nodes.
const SharedHint = "the nodes must have plx, the working directory and the home at the same paths as the machine of plx launch --slurm, on a file system that they share"

// options returns the arguments of sbatch. --signal makes Slurm send SIGTERM
// two minutes before the time limit, so that the plx job can save a
// checkpoint.
func (s Submission) options() []string {
	own := []string{"--parsable", "--job-name=" + s.Name, "--output=" + s.Output, "--open-mode=append", "--signal=B:TERM@120"}
	return slices.Concat(own, s.Options)
}

// Text returns a shell command that submits the script, for plx launch
// --dry-run.
func (s Submission) Text() string {
	return fmt.Sprintf("sbatch %s <<'END'\n%sEND\n", quoted(s.options()), s.Script())
}

// Submit submits the script with sbatch and returns the id of the Slurm job.
func (s Submission) Submit(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sbatch", s.options()...)
	// sbatch needs the user's SBATCH_ variables, which Environ would remove.
	cmd.Dir, cmd.Env, cmd.Stdin = s.Dir, os.Environ(), strings.NewReader(s.Script())
	out, err := output(ctx, cmd)
	var refused *commandError
	var missing missingCommand
	switch {
	case errors.As(err, &missing):
		return "", exit.WithHint(err, "plx launch --slurm needs Slurm's commands on PATH (module load slurm?)")
	case errors.As(err, &refused):
		return "", exit.WithHint(err, "sinfo lists partitions and nodes; --sbatch-option OPTION passes one more option to sbatch, such as --sbatch-option --account=NAME")
	case err != nil:
		return "", err
	}
	id, _, _ := strings.Cut(strings.TrimSpace(out), ";") // the name of a cluster may follow the id
	if !jobID().MatchString(id) {
		return "", fmt.Errorf("sbatch printed %q, which is not a job id", clip(out))
	}
	return id, nil
}

// commandError is the error of a Slurm command that exited with a status other than
// 0.
type commandError struct {
	command, errorLine string
	err                error
}

func (r *commandError) Error() string {
	return fmt.Sprintf("%s: %s (%v)", r.command, r.errorLine, r.err)
}
func (r *commandError) Unwrap() error { return r.err }

// output runs a Slurm command and returns its standard output.
func output(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	name := cmd.Args[0]
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, commandTimeout/60
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", missingCommand(name)
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s did not finish within %v: %s", name, commandTimeout, errorLine(stderr.String()))
	case err != nil:
		return "", &commandError{name, errorLine(stderr.String()), err}
	}
	return stdout.String(), nil
}

// missingCommand is the error that a Slurm command is not installed on this
// machine. Its value is the command's name.
type missingCommand string

func (a missingCommand) Error() string { return fmt.Sprintf("there is no %s here", string(a)) }

func clip(text string) string { return text[:min(len(text), 80)] }

// State is the state of a Slurm job, as scontrol reports it.
type State struct {
	Name     string // Slurm's name of the state, such as PENDING, or Forgotten
	Reason   string // Slurm's reason why the job is pending; empty: none given
	Restarts int    // number of times that Slurm has requeued the job
	Code     int    // exit status of the batch script; valid once the job has ended
	Signal   int    // signal that killed the batch script; 0: none
	Output   string // file to which Slurm writes the script's output; empty: unknown
	Nodes    int    // number of nodes that the job has or requests; 0: unknown
}

// Forgotten is State.Name for a job of which Slurm has dropped its record.
const Forgotten = "forgotten"

// NoOutput is the State.Signal with which Slurm reports that it could not open
// the job's output file.
const NoOutput = 53

// Queued reports whether the job is queued: it has no nodes yet, or lost them
// because Slurm requeued it.
func (s State) Queued() bool {
	return slices.Contains([]string{"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}, s.Name)
}

// Over reports whether the job has ended for good.
func (s State) Over() bool {
	return slices.Contains([]string{"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
		"REVOKED", "TIMEOUT", Forgotten}, s.Name)
}

// Completing reports whether the job has ended but Slurm is still killing its
// processes.
func (s State) Completing() bool { return s.Name == "COMPLETING" }

// GetState returns the state of a Slurm job, as "scontrol show job" reports it.
func GetState(ctx context.Context, id string) (State, error) {
	out, err := ask(ctx, "scontrol", "--oneliner", "show", "job", id)
	if err != nil && strings.Contains(err.Error(), "Invalid job id") {
		return State{Name: Forgotten}, nil
	}
	if err != nil {
		return State{}, err
	}
	return readState(out)
}

// readState parses the output of "scontrol show job".
func readState(line string) (State, error) {
	job := fields(line)
	s := State{Name: job["JobState"], Reason: job["Reason"], Output: job["StdOut"]}
	if s.Reason == "None" || s.Reason == "(null)" {
		s.Reason = ""
	}
	nodes, _, _ := strings.Cut(job["NumNodes"], "-") // NumNodes may be a range MIN-MAX; use its minimum
	s.Nodes, _ = number(nodes)                       // number returns 0 if the value is not a number
	code, signal, both := strings.Cut(cmp.Or(job["ExitCode"], "0:0"), ":")
	var ok [3]bool
	s.Restarts, ok[0] = number(cmp.Or(job["Restarts"], "0"))
	s.Code, ok[1] = number(code)
	s.Signal, ok[2] = number(signal)
	if s.Name == "" || !both || ok != [3]bool{true, true, true} {
		return s, fmt.Errorf("scontrol show job: cannot parse this job: %q", clip(line))
	}
	return s, nil
}

// Cancel runs scancel, which ends the Slurm job or removes it from the queue.
func Cancel(ctx context.Context, id string) error {
	_, err := ask(ctx, "scancel", id)
	return err
}

// CheckOption returns an error if option cannot be used as an sbatch option of
// a [Submission].
func CheckOption(option string) error {
	name, _, _ := strings.Cut(option, "=")
	switch {
	case !strings.HasPrefix(option, "-") || strings.Trim(option, "-") == "":
		return exit.Mistake(fmt.Errorf("--sbatch-option %q: an option begins with a dash", option), "--sbatch-option --account=NAME, with one option in one word")
	case slices.Contains([]string{"--array", "--wrap", "--wait", "--test-only"}, name) || strings.HasPrefix(option, "-a") || strings.HasPrefix(option, "-W"):
		return exit.Mistake(fmt.Errorf("--sbatch-option %s: plx launch submits one job, which runs one script", option), "write a script for sbatch that calls plx launch")
	}
	return nil
}

// quote returns word quoted for a POSIX shell, if it needs quotes.
func quote(word string) string {
	if word != "" && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// quoted returns words as a command line for a POSIX shell.
func quoted(words []string) string {
	var all []string
	for _, w := range words {
		all = append(all, quote(w))
	}
	return strings.Join(all, " ")
}

// Ending describes how a Slurm job ended: its state and, if the job failed,
// its exit status or signal.
func (s State) Ending() string {
	text := s.Name
	switch {
	case s.Signal > 0 && s.Signal != NoOutput:
		text += ", by signal " + strconv.Itoa(s.Signal)
	case s.Code > 0:
		text += ", with status " + strconv.Itoa(s.Code)
	}
	return text
}
