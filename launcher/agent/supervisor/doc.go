//go:build linux

// Package supervisor owns the tasks of one host and job: it starts them, passes on
// what they report, keeps their output and ends them.
//
//	err := supervisor.Run(folder)   // in "plx agent supervisor", started by the watchdog
//
// One goroutine, the loop, runs every function that changes state. Each subject is
// a type whose fields only its own methods assign, on the loop:
//
//	loop        runs functions one after the other
//	record      the state of this host's part: state.json, and what visitors see
//	sessions    connections of the driver and of visitors
//	tasks, task the tasks of the present generation, one of them
//	checkpoint  what the chief was asked to save, and its answer
//	generation  prepares the tasks of a generation and starts them
//	shutdown    ends the host's part: the lease, the kill, the verdict
//	driving     the driver of a detached job, if it runs in this process
//
// The driver is the launcher, or in a detached job the agent of the chief's host.
// The supervisor decides nothing about the job. It reports facts, and the driver
// decides; but without a driver the supervisor ends its tasks when the lease runs
// out, and it does so at once without its watchdog.
package supervisor
