// Package slurm runs jobs of plx in an allocation of Slurm.
//
//	job, err := slurm.Current(os.Getenv)
//	if job == nil || err != nil {
//		return err // no allocation: this process runs outside of Slurm
//	}
//	lines, err := job.Hosts(ctx)
//	reach := hosts.Reach{Hosts: lines, Slurm: job.Run}
//
// The nodes of the allocation are hosts, and a step of Slurm on each of them gives the shell
// that package via needs. Everything above knows nothing of Slurm.
//
// The package asks srun, scontrol, sbatch, squeue and scancel, which every version of Slurm
// has. It refuses to guess: a text of Slurm's that it does not understand is an error.
package slurm

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/exit"
)

// Job is the job of Slurm in whose allocation this process runs.
type Job struct {
	Run
	// Batch tells that this process runs in the script of sbatch, not under salloc.
	Batch bool
	nodes string // list of the nodes, as Slurm abbreviates it
	cores string // number of cores on each node, abbreviated
	tasks string // number of tasks on each node, abbreviated; empty: the user named none
}

// Run is one run of a job of Slurm. Slurm may requeue the job, and then it runs again. The
// zero value is none.
type Run struct {
	ID       string `json:"id,omitempty"`       // of the job; empty: no job
	Restarts int    `json:"restarts,omitempty"` // how often it had been requeued
}

// jobID is an id of a job.
var jobID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9]{1,10}$`) })

// Current reads the environment of an allocation. It returns nil if there is none.
func Current(getenv func(string) string) (*Job, error) {
	id := cmp.Or(getenv("SLURM_JOB_ID"), getenv("SLURM_JOBID"))
	if id == "" {
		return nil, nil
	}
	j := &Job{Run: Run{ID: id}, nodes: cmp.Or(getenv("SLURM_JOB_NODELIST"), getenv("SLURM_NODELIST")), cores: getenv("SLURM_JOB_CPUS_PER_NODE"),
		Batch: getenv("ENVIRONMENT") == "BATCH"}
	if count := getenv("SLURM_RESTART_COUNT"); count != "" {
		var ok bool
		if j.Restarts, ok = number(count); !ok {
			return nil, j.wrong(fmt.Errorf("SLURM_RESTART_COUNT=%q is no number", count))
		}
	}
	if getenv("SLURM_NTASKS") != "" { // otherwise Slurm counts the cores as tasks
		j.tasks = getenv("SLURM_TASKS_PER_NODE")
	}
	switch {
	case !jobID().MatchString(id):
		return nil, j.wrong(fmt.Errorf("SLURM_JOB_ID=%q is no id of a job", id))
	case getenv("SLURM_HET_SIZE") != "":
		return nil, j.wrong(errors.New("it is heterogeneous: plx works in jobs of one component"))
	case j.nodes == "":
		return nil, j.wrong(errors.New("SLURM_JOB_ID is set and SLURM_JOB_NODELIST is not"))
	}
	return j, nil
}

func (j *Job) wrong(err error) error {
	return exit.WithHint(fmt.Errorf("job %s of Slurm: %w", j.ID, err), cmp.Or(exit.Hint(err), avoidHint))
}

// Name is a name for what the batch script launches with these words: the same again when
// Slurm has requeued the job. It is "" outside of a batch script.
func (j *Job) Name(words []string) string {
	if !j.Batch {
		return ""
	}
	h := sha256.New()
	for _, w := range words {
		fmt.Fprintf(h, "%d %s ", len(w), w)
	}
	return fmt.Sprintf("slurm-%s-%x", j.ID, h.Sum(nil)[:4])
}

const (
	avoidHint = "--no-slurm leaves Slurm out: name the hosts with --hosts FILE"
	pathHint  = "Slurm's commands must be on PATH (module load slurm?); " + avoidHint
	overHint  = "the allocation is over: leave its shell and ask for a new one with salloc or sbatch; " + avoidHint
)

// askTime bounds one question to Slurm. A busy slurmctld may take a while.
const askTime = time.Minute

// Environ is the environment for Slurm's commands: without the options that sbatch, salloc
// and srun leave in it. These would change what a step gets.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name != "SLURM_CONF" && (strings.HasPrefix(name, "SLURM_") || strings.HasPrefix(name, "SLURMD_") ||
			strings.HasPrefix(name, "SBATCH_") || strings.HasPrefix(name, "SALLOC_") || strings.HasPrefix(name, "PMI_"))
	})
}

// ask runs one of Slurm's commands and returns what it prints.
func ask(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = Environ()
	out, err := answer(ctx, cmd)
	var refused *refusal
	var missing absent
	switch {
	case errors.As(err, &missing):
		err = exit.WithHint(err, pathHint)
	case errors.As(err, &refused):
		err = explained(err)
	}
	return out, err
}

// complaint is the line that says most among those that a command of Slurm has printed.
func complaint(text string) string {
	var last string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if _, said, ok := strings.Cut(line, "error: "); ok {
			return said
		}
		last = cmp.Or(line, last)
	}
	return cmp.Or(last, "it printed no reason")
}

// explained adds what the user can do.
func explained(err error) error {
	for _, over := range []string{"Invalid job id", "Expired or invalid job", "already completing", "Job credential revoked"} {
		if strings.Contains(err.Error(), over) {
			return exit.WithHint(err, overHint)
		}
	}
	return exit.WithHint(err, avoidHint)
}
