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

// Submission is a batch script that launches a job of plx, and what sbatch is told of it.
type Submission struct {
	Name    string   // of the job of Slurm
	Dir     string   // that the script runs in, absolute
	Output  string   // file for what the script prints, absolute; Slurm replaces %j by its id
	Options []string // more options of sbatch; they are preferred to plx's own
	Job     string   // id of the job of plx
	Command []string // plx, by an absolute path, and its arguments
}

// Variable has the id of the submission in the environment of a script of [Submission].
const Variable = "PLX_SUBMITTED"

// Script is the text of the script. Slurm runs it on the first node, and again if the job is
// requeued. Slurm sends the script's signals to plx, which takes the place of the shell.
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
`, quote(s.Dir), quote(s.Command[0]), SharedHint, exit.CodePlx, quote(s.Dir), exit.CodePlx, Variable, quote(s.Job), quoted(s.Command))
}

// SharedHint is the hint for a job that does not find its files on the nodes.
const SharedHint = "the nodes must have plx, the working directory and the home at the same paths as the machine of plx launch --slurm, on a file system that they share"

// options are the arguments of sbatch. SIGTERM comes two minutes before the time limit, so
// that a job can save a checkpoint.
func (s Submission) options() []string {
	own := []string{"--parsable", "--job-name=" + s.Name, "--output=" + s.Output, "--open-mode=append", "--signal=B:TERM@120"}
	return slices.Concat(own, s.Options)
}

// Text is a shell's command that submits the script, for a dry run.
func (s Submission) Text() string {
	return fmt.Sprintf("sbatch %s <<'END'\n%sEND\n", quoted(s.options()), s.Script())
}

// Submit has sbatch submit the script, and returns the id of the job of Slurm.
func (s Submission) Submit(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sbatch", s.options()...)
	cmd.Dir, cmd.Env, cmd.Stdin = s.Dir, os.Environ(), strings.NewReader(s.Script()) // with the user's SBATCH_ variables
	out, err := answer(ctx, cmd)
	var refused *refusal
	var missing absent
	switch {
	case errors.As(err, &missing):
		return "", exit.WithHint(err, "plx launch --slurm needs Slurm's commands on PATH (module load slurm?)")
	case errors.As(err, &refused):
		return "", exit.WithHint(err, "sinfo lists partitions and nodes; --sbatch-option OPTION passes one more option to sbatch, such as --sbatch-option --account=NAME")
	case err != nil:
		return "", err
	}
	id, _, _ := strings.Cut(strings.TrimSpace(out), ";") // behind it is the name of a cluster
	if !jobID().MatchString(id) {
		return "", fmt.Errorf("sbatch printed %q, which is no id of a job", clip(out))
	}
	return id, nil
}

// refusal is the error of a command of Slurm's that ended with another status than 0.
type refusal struct {
	command, complaint string
	err                error
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %s (%v)", r.command, r.complaint, r.err) }
func (r *refusal) Unwrap() error { return r.err }

// answer runs one of Slurm's commands and returns what it prints.
func answer(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	name := cmd.Args[0]
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, askTime/60
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", absent(name)
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s gave no answer within %v: %s", name, askTime, complaint(stderr.String()))
	case err != nil:
		return "", &refusal{name, complaint(stderr.String()), err}
	}
	return stdout.String(), nil
}

// absent is the error for a command of Slurm's that this machine does not have.
type absent string

func (a absent) Error() string { return fmt.Sprintf("there is no %s here", string(a)) }

func clip(text string) string { return text[:min(len(text), 80)] }

// State is what Slurm tells of a job.
type State struct {
	Name     string // as Slurm writes it, such as PENDING; Forgotten
	Reason   string // why the job waits, in Slurm's word; empty: Slurm names none
	Restarts int    // how often the job was requeued
	Code     int    // exit status of the script of a job that is over
	Signal   int    // signal that ended the script; 0: none
	Output   string // file of what the script prints; empty: not known
	Nodes    int    // number of nodes that the job has, or asks for; 0: not known
}

// Forgotten is the state of a job that Slurm does not know any more.
const Forgotten = "forgotten"

// NoOutput is the signal of a job whose output file Slurm could not open.
const NoOutput = 53

// Waits reports whether the job has no nodes yet, or none any more because it was requeued.
func (s State) Waits() bool {
	return slices.Contains([]string{"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}, s.Name)
}

// Over reports whether the job has ended, and will not run again.
func (s State) Over() bool {
	return slices.Contains([]string{"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
		"REVOKED", "TIMEOUT", Forgotten}, s.Name)
}

// Completing reports whether Slurm is ending what the job has started.
func (s State) Completing() bool { return s.Name == "COMPLETING" }

// Ask asks Slurm for the state of a job.
func Ask(ctx context.Context, id string) (State, error) {
	out, err := ask(ctx, "scontrol", "--oneliner", "show", "job", id)
	if err != nil && strings.Contains(err.Error(), "Invalid job id") {
		return State{Name: Forgotten}, nil
	}
	if err != nil {
		return State{}, err
	}
	return readState(out)
}

// readState reads a line of "scontrol show job".
func readState(line string) (State, error) {
	job := fields(line)
	s := State{Name: job["JobState"], Reason: job["Reason"], Output: job["StdOut"]}
	if s.Reason == "None" || s.Reason == "(null)" {
		s.Reason = ""
	}
	nodes, _, _ := strings.Cut(job["NumNodes"], "-") // from the least to the most
	s.Nodes, _ = number(nodes)                       // 0 if it is none
	code, signal, both := strings.Cut(cmp.Or(job["ExitCode"], "0:0"), ":")
	var ok [3]bool
	s.Restarts, ok[0] = number(cmp.Or(job["Restarts"], "0"))
	s.Code, ok[1] = number(code)
	s.Signal, ok[2] = number(signal)
	if s.Name == "" || !both || ok != [3]bool{true, true, true} {
		return s, fmt.Errorf("scontrol show job: this is no job: %q", clip(line))
	}
	return s, nil
}

// Cancel has Slurm end a job, or take it out of its queue.
func Cancel(ctx context.Context, id string) error {
	_, err := ask(ctx, "scancel", id)
	return err
}

// CheckOption refuses what cannot be an option of sbatch for a [Submission].
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

// quote writes a word for a POSIX shell.
func quote(word string) string {
	if word != "" && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// quoted writes a command for a POSIX shell.
func quoted(words []string) string {
	var all []string
	for _, w := range words {
		all = append(all, quote(w))
	}
	return strings.Join(all, " ")
}

// Ending says how a job of Slurm has ended.
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
