// Package slurm runs plx jobs in an allocation of the Slurm workload manager.
//
//	job, err := slurm.Current(os.Getenv)
//	if job == nil || err != nil {
//		return err // no allocation: this process runs outside of Slurm
//	}
//	lines, err := job.Hosts(ctx)
//	reach := hosts.Reach{Hosts: lines, Slurm: job.Run}
//
// Each node of the allocation is a host for plx. plx connects to a node
// without SSH: it runs a Slurm step (srun) that starts a shell on the node,
// and package via uses that shell. The other packages treat such a host like
// any other.
//
// The package runs srun, scontrol, sbatch and scancel. Output of these commands
// that it cannot parse is an error; the package never guesses.
//
// TODO: try newer versions of Slurm. The tests run only version 22.05, of
// Debian 12, on hosts without cgroups.
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

// Job is the Slurm job in whose allocation this process runs.
type Job struct {
	Run
	// Batch is true if this process runs in a batch script of sbatch, and
	// false under salloc.
	Batch bool
	nodes string // names of the nodes in Slurm's notation, such as gpu[01-04]
	cores string // cores on each node in Slurm's notation, such as 4(x2),2
	tasks string // tasks on each node in Slurm's notation; empty if the user requested no number
}

// Run identifies one run of a Slurm job. A job that Slurm has requeued runs
// again, with the same ID and one more restart. The zero value means no job.
type Run struct {
	ID       string `json:"id,omitempty"`       // id of the Slurm job; empty: no job
	Restarts int    `json:"restarts,omitempty"` // number of times that Slurm had requeued the job when this run began
}

// jobID matches the id of a Slurm job.
var jobID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9]{1,10}$`) })

// Current returns the Slurm job that the environment variables describe, or
// nil if this process runs outside of an allocation.
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
			return nil, j.wrapError(fmt.Errorf("SLURM_RESTART_COUNT=%q is no number", count))
		}
	}
	if getenv("SLURM_NTASKS") != "" { // Without SLURM_NTASKS, the user requested no number of tasks, and SLURM_TASKS_PER_NODE is only the number of cores.
		j.tasks = getenv("SLURM_TASKS_PER_NODE")
	}
	switch {
	case !jobID().MatchString(id):
		return nil, j.wrapError(fmt.Errorf("SLURM_JOB_ID=%q is not a job id", id))
	case getenv("SLURM_HET_SIZE") != "":
		return nil, j.wrapError(errors.New("it is a heterogeneous job, which plx does not support"))
	case j.nodes == "":
		return nil, j.wrapError(errors.New("SLURM_JOB_ID is set and SLURM_JOB_NODELIST is not"))
	}
	return j, nil
}

func (j *Job) wrapError(err error) error {
	return exit.WithHint(fmt.Errorf("job %s of Slurm: %w", j.ID, err), cmp.Or(exit.Hint(err), avoidHint))
}

// Name returns a name for the plx job that a batch script launches. words is
// the command line of this plx command. After Slurm has requeued the batch
// job, Name returns the same name. It returns "" if this process is not in a
// batch script.
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
	avoidHint = "--no-slurm ignores the Slurm allocation: name the hosts with --hosts FILE"
	pathHint  = "Slurm's commands must be on PATH (module load slurm?); " + avoidHint
	overHint  = "the allocation is over: leave its shell and ask for a new one with salloc or sbatch; " + avoidHint
)

// commandTimeout limits one run of a Slurm command. A busy slurmctld may need long to
// reply.
const commandTimeout = time.Minute

// Environ returns the environment for Slurm commands. It lacks the variables
// with which sbatch, salloc and srun pass on their options, since these would
// change the resources of a step.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name != "SLURM_CONF" && (strings.HasPrefix(name, "SLURM_") || strings.HasPrefix(name, "SLURMD_") ||
			strings.HasPrefix(name, "SBATCH_") || strings.HasPrefix(name, "SALLOC_") || strings.HasPrefix(name, "PMI_"))
	})
}

// ask runs a Slurm command and returns its output. Its errors have hints.
func ask(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = Environ()
	out, err := output(ctx, cmd)
	var refused *commandError
	var missing missingCommand
	switch {
	case errors.As(err, &missing):
		err = exit.WithHint(err, pathHint)
	case errors.As(err, &refused):
		err = withHint(err)
	}
	return out, err
}

// errorLine returns the most useful line of a Slurm command's stderr: the text
// after the first "error: ", or the last line if no line has "error: ".
func errorLine(text string) string {
	var last string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if _, said, ok := strings.Cut(line, "error: "); ok {
			return said
		}
		last = cmp.Or(line, last)
	}
	return cmp.Or(last, "it printed no error message")
}

// withHint adds a hint for the user to the error of a failed Slurm command.
func withHint(err error) error {
	for _, over := range []string{"Invalid job id", "Expired or invalid job", "already completing", "Job credential revoked"} {
		if strings.Contains(err.Error(), over) {
			return exit.WithHint(err, overHint)
		}
	}
	return exit.WithHint(err, avoidHint)
}
