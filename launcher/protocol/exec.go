package protocol

import "time"

// ExecRequest is a command that an agent is to run. Orders to it are a byte each, as many as
// there are in an Order.
type ExecRequest struct {
	// Mark names the command as a job does, in the environment of all its processes: so they can be
	// found if the agent is killed.
	Mark HostJob `json:"mark"`

	Command Command       `json:"command"`
	Env     []Raw         `json:"env,omitempty"`     // the user's NAME=VALUE, any bytes but NUL
	Lease   time.Duration `json:"lease"`             // how long the command may run without an order
	Grace   time.Duration `json:"grace"`             // from telling the command to end to killing it; 0: kill at once
	MaxTime time.Duration `json:"maxTime,omitempty"` // bounds the command; 0: no limit

	// Job and Folder name a job with a working directory. The command runs there, and
	// what the job's --setup has changed counts for it. "": it runs for no job.
	Job    string `json:"job,omitempty"`
	Folder string `json:"folder,omitempty"` // as in Spec
	// Setup says that Command.Setup is the job's --setup, and all that is run. What it
	// changes is recorded for the job's tasks. It is not run again after a success.
	Setup bool `json:"setup,omitempty"`
}

// Executed is the end of a command.
type Executed struct {
	Status int `json:"status"` // as a shell has it: 128 and more by a signal
}

// Orders to a command. The end of them is an ExecStop.
const (
	ExecBeat = '.' // renews the lease
	ExecStop = 't' // tells the command to end, and kills it after the grace
	ExecKill = 'k' // kills the command
)

// ExecTimedOut is the exit status of a command whose MaxTime ran out.
const ExecTimedOut = 124
