// Package report writes a report on one or several jobs, as an HTML page that
// needs no network, as Markdown or as JSON.
//
//	err := report.HTML(file, runs)
//
// The package asks no hosts and reads no files: package jobs collects the
// data.
package report

import (
	"time"

	"github.com/plx-run/plx/launcher/metrics"
)

// Run is everything that plx knows about a job.
type Run struct {
	Job     string // id of the job
	Name    string // the user's name for the job; empty if the user gave none
	Command string // the tasks' command line, quoted for a shell and without secrets
	Created time.Time
	Ended   time.Time // zero if the job runs or its end is not known
	AsOf    time.Time // time at which State was read from the job's hosts; zero if not known
	State   string    // the job's state as plx jobs prints it, such as "running", "done" or "failed"
	Code    *int      // exit status of plx for the job; nil if the job has not ended
	Verdict string    // why the job ended, in one line; empty if it has not ended
	Details []string  // further lines about the end: how each task ended, and which checkpoint was saved

	Facts  []Fact   // properties of the run, in the order in which the report shows them
	Plan   []string // the plan of the launch: which tasks run where, as lines of a table
	Events []Event  // what happened to the job, ordered by time
	Series []Series
	Tails  []Tail
	// Missing has a line for each part of the data that plx could not get,
	// such as "host gpu02: timed out".
	Missing []string
}

// Fact is a property of a run, such as "git commit". A report on several runs
// compares their facts.
type Fact struct{ Name, Value string }

// Event is something that happened to a job, with its time.
type Event struct {
	Time time.Time
	Kind string // kind of the event: Started, Exited, ... (the constants below)
	Host string // empty if the event concerns no single host
	Task string // empty if the event concerns no single task
	Text string // what happened, as a line for the reader of the report
}

// Values of Event.Kind.
const (
	Started    = "start"      // a task started
	Exited     = "exit"       // a task ended
	Restarted  = "restart"    // all tasks were started again, as the next generation
	Hung       = "hang"       // plx found that the job made no progress
	Checkpoint = "checkpoint" // a checkpoint was completed
	Noted      = "note"       // plx printed a message about the job, such as why it restarts
	Ended      = "end"        // the job has ended
)

// Series has the values of one metric from one task or host, in the order in
// which they were reported.
type Series struct {
	Name   string // the metric's name, such as "loss"; a series about a host's load has a name in the constants below
	Host   string
	Task   string // the task that reported the values, such as "worker:0"; empty if they concern the host
	Points []metrics.Point
}

// Names of the series about a host's load. They equal the constants of package
// metrics. The names of GPU series end in the index of the GPU, as in
// "gpu_percent_0".
const (
	CPU       = "cpu"         // number of busy processors, such as 1.5
	CPUs      = "cpus"        // number of processors of the host, as a series with one point
	Memory    = "memory"      // bytes of memory that are not available to programs
	Received  = "received"    // bytes per second received on all network interfaces except loopback
	Sent      = "sent"        // bytes per second sent on all network interfaces except loopback
	GPU       = "gpu_percent" // percent of the time in which a kernel was running on the GPU
	GPUMemory = "gpu_memory"  // bytes of GPU memory in use
)

// Tail has the last output lines of a task.
type Tail struct {
	Task, Host string
	Lines      []string // unescaped output of a program: may contain any bytes, also terminal control sequences
}
