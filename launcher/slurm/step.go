package slurm

import "strings"

// stepFlags are the flags of srun for every step of plx's. --overlap shares what the job has
// with other steps, --mem=0 is all memory of the job on the node. Without --unbuffered srun
// would wait for the ends of lines. Workers are bound to cores by plx.
func stepFlags(id string) []string {
	return []string{"--quiet", "--jobid=" + id, "--overlap", "--mem=0", "--cpu-bind=none", "--mpi=none", "--unbuffered", "--chdir=/"}
}

// Command is the command that gives a shell on a node of the job, as package via wants it.
func Command(id string) string {
	return "exec srun " + strings.Join(stepFlags(id), " ") + " --nodes=1 --ntasks=1 --nodelist={host} {command}"
}
