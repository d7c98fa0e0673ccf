// Package agent is "plx agent": what runs on a host.
//
// The launcher runs the plx binary as "plx agent start" over SSH. That process
// answers calls (calls.go): what the host is and has, its GPUs, which it may hold, its
// interfaces, what it knows of jobs; it takes and gives files, and its own program. With the Spec of a job it makes the job's folder, starts the
// job's supervisor and becomes its watchdog. Both outlive the connection:
//
//	plx agent start          the watchdog; its exit status tells the launcher how the job ended here
//	  plx agent supervisor   has the stream to the launcher; owns the tasks, their output and the lease
//	    ps:0, worker:0, ...  sessions of their own
//
// Watchdog and supervisor adopt all orphans among the tasks' processes, and each
// sees the other end. If one is killed, the other kills every process of the job on
// this host. The supervisor also does so if it does not hear its driver for the
// lease. See packages watchdog, supervisor, process and lease.
//
// This package has the short-lived commands:
//
//	start    answer calls; then start a job, or connect to the agent of one and relay
//	logs     print the output of the tasks
//	exec     run a command that is no task, as the child of an agent that is asked to
//
// An agent knows no host but its own. It reports facts and decides nothing about the
// job. It runs on Linux only; elsewhere Main fails.
package agent

// Exit statuses of the commands.
const (
	codeFailed  = 1 // the reason is one line on standard error
	codeUsage   = 2 // wrong arguments
	codeNoAgent = 3 // start: no agent of the job is here any more, or none can be started
)
