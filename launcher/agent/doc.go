// Package agent implements "plx agent", the part of plx that runs on each host
// of a job.
//
// The launcher (plx on the user's machine) runs the plx binary as "plx agent
// start" over SSH. That process first answers calls (calls.go): it reports
// facts about the host, its GPUs, network interfaces and jobs, locks GPUs, and
// sends and receives files, including the plx binary itself. When it receives
// the Spec of a job, it makes the job's folder, starts the job's supervisor
// and becomes its watchdog. Watchdog and supervisor outlive the SSH
// connection:
//
//	plx agent start          the watchdog; its exit status tells the launcher how the job ended on this host
//	  plx agent supervisor   talks to the launcher; starts the tasks, stores their output, checks the lease
//	    ps:0, worker:0, ...  the tasks, each in its own session
//
// Watchdog and supervisor are subreapers: they adopt orphaned descendants of
// the tasks. Each notices when the other ends. If one of them is killed, the
// other kills every process of the job on this host. The supervisor also kills
// the tasks if its driver (the process that runs the job as a whole) sends no
// message for the duration of the lease. See packages watchdog, supervisor,
// process and lease.
//
// This package itself implements the short-lived commands, among them:
//
//	start    answer calls; then start a job, or relay between the launcher and a running job's agent
//	logs     print the output of the tasks
//	exec     run a command that is no task, as a child of "plx agent start"
//
// An agent knows only its own host. It reports facts; the driver makes all
// decisions about the job. The package supports Linux only; elsewhere Main
// fails.
package agent

// Exit statuses of "plx agent" commands.
const (
	codeFailed  = 1 // the command failed; standard error has the reason, one line
	codeUsage   = 2 // wrong arguments
	codeNoAgent = 3 // returned only by "start": the job has no running agent on this host, or its agent could not be started
)
