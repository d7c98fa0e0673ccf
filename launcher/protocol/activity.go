package protocol

import (
	"time"

	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/trainer/cluster"
)

// Look asks an agent what its tasks do. The driver and visitors may ask. The answer is a
// Seen with the same ID.
type Look struct {
	ID    int  `json:"id"`
	Waits bool `json:"waits,omitempty"` // with what each thread waits for
	// Metrics asks for the newest values that the tasks have reported. An agent of an older
	// plx sends none.
	Metrics bool `json:"metrics,omitempty"`
	// Stacks has the agent write the stacks of the tasks into the job's folder, by ways that
	// do no harm.
	Stacks bool `json:"stacks,omitempty"`
	Tell   bool `json:"tell,omitempty"` // with the text of the stacks; without it, with an excerpt
	Host   bool `json:"host,omitempty"` // with how much of the host is used
}

// Seen is what an agent knows of the tasks that run on its host.
type Seen struct {
	ID         int                        `json:"id"`              // of the Look
	Generation int                        `json:"generation"`      // of the tasks
	Tasks      map[cluster.Task]*Activity `json:"tasks,omitempty"` // tasks whose process runs
	Host       *HostUse                   `json:"host,omitempty"`  // nil: Look has not asked for it, or an agent of an earlier plx cannot tell
}

// Activity is what one task does.
type Activity struct {
	PID int           `json:"pid"`           // of the process that the agent started
	Age time.Duration `json:"age,omitempty"` // since the process was started; 0: not known

	// Still is how long nothing of the task has moved. Quiet is how long nothing has moved
	// but processor time. Quiet is never less than Still.
	Still time.Duration `json:"still"`
	Quiet time.Duration `json:"quiet"`

	// Metrics are the newest values that the task has reported in this generation, by name. Nil:
	// there are none, or Look has not asked for them.
	Metrics map[string]metrics.Number `json:"metrics,omitempty"`

	Processes []Process `json:"processes,omitempty"` // the task's own first; nil: Look has not asked for waits
	Stacks    string    `json:"stacks,omitempty"`    // "": Look has not asked for the text
	Training  *Training `json:"training,omitempty"`  // nil: the task does not use plx's trainer, or has not sent its stacks
	Excerpt   []string  `json:"excerpt,omitempty"`   // lines of the stacks that tell a user most; nil: there are none
	Places    []string  `json:"places,omitempty"`    // where the program is, equal for tasks that do the same; nil: it is not written in Python or for plx's trainer
	File      string    `json:"file,omitempty"`      // on the host, where the stacks were written; "": they were not
}

// Training is where the program of a task of plx's trainer is.
type Training struct {
	Waits bool   `json:"waits,omitempty"` // in a call of the trainer that needs other tasks
	Where string `json:"where,omitempty"` // its goroutine, if it is in no such call
}

// Process is one process of a task.
type Process struct {
	PID     int      `json:"pid"`
	Parent  int      `json:"parent"`
	Name    string   `json:"name"`              // the kernel's name for the program, at most 15 bytes
	Threads []Thread `json:"threads,omitempty"` // the first thread first; threads that wait alike are one element
	Sockets []Socket `json:"sockets,omitempty"` // TCP sockets
	// Go says that the program is written in Go: its runtime polls all of its sockets, also
	// those for which nothing of the program waits.
	Go bool `json:"go,omitempty"`
}

// Wait is what a thread does, or what it waits for.
type Wait string

// The kinds of Wait.
const (
	Runs     Wait = "runs"
	Stopped  Wait = "stopped"   // by a signal or a debugger
	InKernel Wait = "kernel"    // it cannot be interrupted: a disk, a network file system or a driver
	Sleeps   Wait = "sleeps"    // until a time
	OnLock   Wait = "lock"      // a lock or a condition of its own process
	OnChild  Wait = "child"     // the end of a child
	OnFile   Wait = "file lock" // a lock on a file
	OnRead   Wait = "read"      // bytes or a connection from a file, pipe or socket
	OnWrite  Wait = "write"     // room in a pipe or socket, or that a connection opens
	OnPoll   Wait = "poll"      // any of several pipes or sockets
	OnOther  Wait = "other"     // something else: Where has the name
)

// Thread is a thread, or Count threads of a process that wait alike.
type Thread struct {
	Wait    Wait   `json:"wait"`
	Count   int    `json:"count"`
	Where   string `json:"where,omitempty"`   // the kernel's function that waits; "": the kernel does not tell
	What    string `json:"what,omitempty"`    // file, pipe or socket that it waits for; "": none, or several
	PIDs    []int  `json:"pids,omitempty"`    // processes of the host that can end the wait: children, the other end of a pipe, who holds a lock
	Sockets []int  `json:"sockets,omitempty"` // those that it waits for, by index into Process.Sockets
}

// Socket is a TCP socket. Addresses are ADDRESS:PORT.
type Socket struct {
	Local     string        `json:"local"`
	Peer      string        `json:"peer"`
	Listening bool          `json:"listening,omitempty"` // it accepts connections; Unread is how many wait
	Opening   bool          `json:"opening,omitempty"`   // the peer has not answered
	Unread    int64         `json:"unread,omitempty"`    // bytes that the process has not read
	Unsent    int64         `json:"unsent,omitempty"`    // bytes that the peer has not acknowledged
	Retries   int           `json:"retries,omitempty"`   // how often the kernel has sent the oldest of them again
	Sent      time.Duration `json:"sent,omitempty"`      // time since bytes were last sent
	Received  time.Duration `json:"received,omitempty"`  // time since bytes were last received
}

// What to do with a job that hangs.
const (
	HangReport  = "report"
	HangStop    = "stop"
	HangRestart = "restart"
)

// HangPlan says when a job counts as hung, and what follows.
type HangPlan struct {
	Timeout time.Duration `json:"timeout"` // how long nothing moves in any task; 0: the job is not watched
	Action  string        `json:"action"`  // HangReport, HangStop or HangRestart
}

// Hang is the verdict on a job that has hung.
type Hang struct {
	After   time.Duration `json:"after"`             // how long nothing had moved
	Culprit string        `json:"culprit,omitempty"` // task for which the others wait, such as "worker:2"; "": none could be named
	Host    string        `json:"host,omitempty"`    // name of its host
	Why     string        `json:"why"`               // what it does, or why no task could be named
	Waits   []string      `json:"waits,omitempty"`   // what the tasks do, one line for those that do the same
	Stack   []string      `json:"stack,omitempty"`   // lines of the culprit's stacks that tell a user most; nil: none are known
	File    string        `json:"file,omitempty"`    // on the culprit's host, where its stacks were written; "": they were not
}
