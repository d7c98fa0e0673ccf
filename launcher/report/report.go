// Package report writes what is kept of one or several jobs as a page that opens without a
// network, as Markdown or as JSON.
//
//	err := report.HTML(file, runs)
//
// It asks nobody: package jobs collects the runs.
package report

import (
	"time"

	"github.com/plx-run/plx/launcher/metrics"
)

// Run is what is known of a job.
type Run struct {
	Job     string // id
	Name    string // given by the user; empty: none
	Command string // of the tasks, as a shell would take it, without secrets
	Created time.Time
	Ended   time.Time // zero: it runs, or that is not known
	AsOf    time.Time // when State was read from the job; zero: not known
	State   string    // such as "running", "done" and "failed", as plx jobs shows it
	Code    *int      // plx's exit status; nil: the job has not ended
	Verdict string    // why the job ended, in a line; empty: it has not
	Details []string  // further lines about the verdict: how the tasks ended, what the job saved

	Facts  []Fact   // what the job ran with, in the order in which to show it
	Plan   []string // where the tasks were to run, as lines of a table in monospaced text
	Events []Event  // in the order of time
	Series []Series
	Tails  []Tail
	// Missing are reasons why something is not in the report, each as a line such as "host gpu02: timed out".
	Missing []string
}

// Fact is a property of a run that the table of differences compares, such as "git commit".
type Fact struct{ Name, Value string }

// Event is something that happened to a job.
type Event struct {
	Time time.Time
	Kind string // one of the kinds below
	Host string // empty: it concerns no single host
	Task string // empty: it concerns no single task
	Text string // what happened, as a line for the user
}

// The kinds of events.
const (
	Started    = "start"      // a task started
	Exited     = "exit"       // a task ended
	Restarted  = "restart"    // a further generation of tasks begins
	Hung       = "hang"       // nothing moves in the job
	Checkpoint = "checkpoint" // a checkpoint is complete
	Noted      = "note"       // the driver reported something, such as why the job restarts
	Ended      = "end"        // the job has ended
)

// Series are the values of one name from one task or host, in the order in which they came.
type Series struct {
	Name   string // of the metric, such as "loss"; of a host's use one of the names below
	Host   string
	Task   string // such as "worker:0"; empty: the values are of the host
	Points []metrics.Point
}

// The names of series of hosts. All are metrics of package metrics too. Those of a GPU end in its index, as in
// "gpu_percent_0".
const (
	CPU       = "cpu"         // processors that are busy, such as 1.5
	CPUs      = "cpus"        // processors that the host has: one point
	Memory    = "memory"      // bytes that are not available to programs
	Received  = "received"    // bytes a second through all interfaces but the loopback
	Sent      = "sent"        // bytes a second
	GPU       = "gpu_percent" // percent of the time in which a kernel ran
	GPUMemory = "gpu_memory"  // bytes
)

// Tail are the last lines of a task's output.
type Tail struct {
	Task, Host string
	Lines      []string // may hold any bytes that a program prints, also escape sequences
}
