package slurm

import "strings"

// stepFlags returns the srun flags for each step that plx runs. --overlap
// shares the job's resources with other steps, and --mem=0 means all memory of
// the job on the node. Without --unbuffered srun would buffer output until the
// end of a line. --cpu-bind=none is set because plx itself binds workers to
// cores.
func stepFlags(id string) []string {
	return []string{"--quiet", "--jobid=" + id, "--overlap", "--mem=0", "--cpu-bind=none", "--mpi=none", "--unbuffered", "--chdir=/"}
}

// Command returns the command line that starts a shell on a node of the job.
// Package via replaces its placeholders {host} and {command}.
func Command(id string) string {
	return "exec srun " + strings.Join(stepFlags(id), " ") + " --nodes=1 --ntasks=1 --nodelist={host} {command}"
}
