package protocol

import (
	"time"

	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/trainer/cluster"
)

// ActivityRequest asks an agent what the tasks on its host are doing. The
// senders are the driver (the process that runs the job) and visitors
// (commands such as plx top). The agent answers with an ActivityReport of the
// same ID, in the message Seen.
type ActivityRequest struct {
	ID    int  `json:"id"`
	Waits bool `json:"waits,omitempty"` // if true, the report also lists each process and what its threads wait for
	// Metrics asks for the newest metric values that the tasks have reported.
	// An agent of an older plx version ignores this field and sends no
	// metrics.
	Metrics bool `json:"metrics,omitempty"`
	// Stacks makes the agent write the stack traces of its tasks to files in
	// the job's folder. The agent obtains them only by methods that do not
	// disturb a running task.
	Stacks bool `json:"stacks,omitempty"`
	Tell   bool `json:"tell,omitempty"` // if true, the report has the full text of the stack traces, otherwise only an excerpt
	Host   bool `json:"host,omitempty"` // if true, the report has the host's CPU, memory, network and GPU usage
}

// ActivityReport is an agent's report of what the tasks on its host are doing.
// It answers an ActivityRequest.
type ActivityReport struct {
	ID         int                        `json:"id"`              // ID of the ActivityRequest
	Generation int                        `json:"generation"`      // number of the generation (run of all tasks) that the reported tasks belong to
	Tasks      map[cluster.Task]*Activity `json:"tasks,omitempty"` // activity of each task that has a running process
	Host       *HostUse                   `json:"host,omitempty"`  // usage of the host; nil if it was not requested, or if the agent's plx version cannot measure it
}

// Activity describes what one task is doing now.
type Activity struct {
	PID int           `json:"pid"`           // process ID of the process that the agent started for the task
	Age time.Duration `json:"age,omitempty"` // time since the process PID was started; 0 means unknown

	// Idle is the time since the task last showed any activity: output, a
	// training step, network or file I/O, or use of the processor or GPU.
	// IOIdle is the time since any of these except use of the processor or
	// GPU. So IOIdle is at least Idle.
	Idle   time.Duration `json:"still"`
	IOIdle time.Duration `json:"quiet"`

	// Metrics holds the newest value of each metric that the task has reported
	// in this generation, by the metric's name. It is nil if the task has
	// reported none or the request did not ask for metrics.
	Metrics map[string]metrics.Number `json:"metrics,omitempty"`

	Processes []Process `json:"processes,omitempty"` // processes of the task; the first is the one that the agent started; nil unless requested
	Stacks    string    `json:"stacks,omitempty"`    // full text of the task's stack traces; empty unless requested
	Training  *Training `json:"training,omitempty"`  // position of the program within plx's trainer; nil if the task does not use the trainer or gave no stack traces
	Excerpt   []string  `json:"excerpt,omitempty"`   // the stack trace lines that help a user most; nil if there are none
	Places    []string  `json:"places,omitempty"`    // current position in the program, equal for tasks that execute the same code; nil if unknown
	File      string    `json:"file,omitempty"`      // path of the file on the task's host that has the stack traces; empty if none was written
}

// Training describes the position of a program that uses plx's trainer.
type Training struct {
	Waits bool   `json:"waits,omitempty"` // true if the program is blocked in a trainer call that waits for other tasks
	Where string `json:"where,omitempty"` // line of the training goroutine's stack trace that shows its position; empty if Waits is true
}

// Process is one operating system process of a task.
type Process struct {
	PID     int      `json:"pid"`
	Parent  int      `json:"parent"`
	Name    string   `json:"name"`              // process name as in /proc/PID/comm, at most 15 bytes
	Threads []Thread `json:"threads,omitempty"` // the main thread first; other threads that wait for the same thing share one element
	Sockets []Socket `json:"sockets,omitempty"` // TCP sockets
	// Go is true if the program is written in Go. The Go runtime polls every
	// socket of the process, even one that no goroutine waits for. So a poll
	// by such a process does not show what the program waits for.
	Go bool `json:"go,omitempty"`
}

// Wait is the state of a thread: running, stopped, or what it is blocked on.
type Wait string

// Values of Wait.
const (
	Runs     Wait = "runs"
	Stopped  Wait = "stopped"   // stopped by a signal or a debugger
	InKernel Wait = "kernel"    // in an uninterruptible kernel wait (state D): for a disk, a network file system or a driver
	Sleeps   Wait = "sleeps"    // sleeping for a fixed time
	OnLock   Wait = "lock"      // blocked on a mutex or condition variable (futex) of its own process
	OnChild  Wait = "child"     // waiting for a child process to exit
	OnFile   Wait = "file lock" // blocked on a file lock
	OnRead   Wait = "read"      // blocked reading from a file, pipe or socket, or accepting a connection
	OnWrite  Wait = "write"     // blocked writing to a full pipe or socket, or connecting a socket
	OnPoll   Wait = "poll"      // polling several pipes or sockets
	OnOther  Wait = "other"     // blocked on something else; Thread.Where names the kernel function
)

// Thread describes one thread of a process, or Count threads that wait for the
// same thing.
type Thread struct {
	Wait    Wait   `json:"wait"`
	Count   int    `json:"count"`
	Where   string `json:"where,omitempty"`   // kernel function in which the thread waits; empty if the kernel does not show it
	What    string `json:"what,omitempty"`    // file, pipe or socket that the thread waits for; empty if there is none or more than one
	PIDs    []int  `json:"pids,omitempty"`    // processes on this host that can end the wait, such as child processes, readers or writers of the pipe, or holders of the lock
	Sockets []int  `json:"sockets,omitempty"` // sockets that the thread waits for, as indices into Process.Sockets
}

// Socket describes a TCP socket of a process. Addresses have the form IP:PORT.
type Socket struct {
	Local     string        `json:"local"`
	Peer      string        `json:"peer"`
	Listening bool          `json:"listening,omitempty"` // true for a listening socket; Unread is then the number of connections not yet accepted
	Opening   bool          `json:"opening,omitempty"`   // true while the connection is being established (SYN sent, no reply yet)
	Unread    int64         `json:"unread,omitempty"`    // bytes received by the kernel that the process has not read yet
	Unsent    int64         `json:"unsent,omitempty"`    // bytes that the process has sent and the peer has not acknowledged yet
	Retries   int           `json:"retries,omitempty"`   // number of times that the kernel has retransmitted the oldest unacknowledged bytes
	Sent      time.Duration `json:"sent,omitempty"`      // time since bytes were last sent
	Received  time.Duration `json:"received,omitempty"`  // time since bytes were last received
}

// Values of HangPlan.Action. They say what the driver does with a job that
// hangs.
const (
	HangReport  = "report"
	HangStop    = "stop"
	HangRestart = "restart"
)

// HangPlan configures hang detection. It says when a job counts as hung and
// what the driver then does.
type HangPlan struct {
	Timeout time.Duration `json:"timeout"` // a job in which no task makes progress for this long is hung; 0 disables hang detection
	Action  string        `json:"action"`  // HangReport, HangStop or HangRestart
}

// Hang describes a job that hangs: for how long, which task is to blame, and
// why.
type Hang struct {
	After   time.Duration `json:"after"`             // how long no task had made progress when the hang was detected
	Culprit string        `json:"culprit,omitempty"` // the task that the others wait for, such as "worker:2"; empty if no single task could be blamed
	Host    string        `json:"host,omitempty"`    // name of the culprit's host
	Why     string        `json:"why"`               // what the culprit is doing, or why no task could be blamed
	Waits   []string      `json:"waits,omitempty"`   // what each task is doing; tasks that do the same share one line
	Stack   []string      `json:"stack,omitempty"`   // lines of the culprit's stack trace that help a user most; nil if there are none
	File    string        `json:"file,omitempty"`    // path of the file on the culprit's host that has its stack traces; empty if none was written
}
