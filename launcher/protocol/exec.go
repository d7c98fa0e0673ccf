package protocol

import "time"

// ExecRequest is a command that an agent runs by the method DoExec. Each byte
// of an Order to it is one of ExecBeat, ExecStop and ExecKill.
type ExecRequest struct {
	// Mark identifies the command in the environment variables of all its
	// processes, as a job does for its tasks. If the agent is killed, the next
	// agent finds the processes by this mark.
	Mark HostJob `json:"mark"`

	Command Command       `json:"command"`
	Env     []Raw         `json:"env,omitempty"`     // user's environment variables, NAME=VALUE; any bytes except NUL
	Lease   time.Duration `json:"lease"`             // the agent stops the command after this long without an Order
	Grace   time.Duration `json:"grace"`             // time between SIGTERM and SIGKILL when the command is stopped; 0 sends SIGKILL at once
	MaxTime time.Duration `json:"maxTime,omitempty"` // largest running time of the command; 0 means no limit

	// Job and Folder name a job with a working directory, in which the command
	// then runs. The command also gets the environment that the job's --setup
	// script has produced. Both are empty if the command belongs to no job.
	Job    string `json:"job,omitempty"`
	Folder string `json:"folder,omitempty"` // name of the host's folder of the job, as in Spec
	// Setup means that the agent runs only Command.Setup, which is the job's
	// --setup script. The agent stores the resulting environment for the job's
	// tasks. Once the script has succeeded, the agent does not run it again.
	Setup bool `json:"setup,omitempty"`
}

// Executed reports that a command has ended.
type Executed struct {
	Status int `json:"status"` // exit status as a shell reports it: 128 + N if signal N ended the command
}

// Bytes of an Order to a running command. The end of the orders has the effect
// of ExecStop.
const (
	ExecBeat = '.' // extends the lease: the time that the command may run without an Order
	ExecStop = 't' // sends SIGTERM to the command, and SIGKILL after the grace period
	ExecKill = 'k' // kills the command immediately
)

// ExecTimedOut is the exit status of a command that was stopped after MaxTime.
const ExecTimedOut = 124
