package protocol

import "time"

// ExecRequest is the parameter of the method DoExec: a command that an agent
// runs. While the command runs, the caller sends Order messages. Each byte in
// them is ExecBeat, ExecStop or ExecKill.
type ExecRequest struct {
	// Mark identifies the command's processes: it is in the environment
	// variables of all of them, as that of a job is in its tasks. If the agent
	// is killed, the next agent finds the processes by this mark.
	Mark HostJob `json:"mark"`

	Command Command       `json:"command"`
	Env     []Raw         `json:"env,omitempty"`     // user's environment variables, NAME=VALUE; any bytes except NUL
	Lease   time.Duration `json:"lease"`             // the agent stops the command when no Order has arrived for this long
	Grace   time.Duration `json:"grace"`             // time between SIGTERM and SIGKILL when the agent stops the command; 0 sends SIGKILL at once
	MaxTime time.Duration `json:"maxTime,omitempty"` // largest running time of the command; 0 means no limit

	// Job and Folder name a job. The command then runs in the job's working
	// directory, with the environment that the job's --setup script has
	// produced. Both are empty if the command belongs to no job.
	Job    string `json:"job,omitempty"`
	Folder string `json:"folder,omitempty"` // name of the host's folder of the job, as in Spec
	// Setup means that the agent runs only Command.Setup, which is the job's
	// --setup script. The agent stores the resulting environment for the job's
	// tasks. If the script has already succeeded, the agent does not run it
	// again.
	Setup bool `json:"setup,omitempty"`
}

// Executed reports that a command has ended.
type Executed struct {
	Status int `json:"status"` // exit status as a shell reports it: 128 + N if signal N ended the command
}

// Bytes of an Order to a running command. If the caller ends the stream of
// Orders, the agent stops the command as for ExecStop.
const (
	ExecBeat = '.' // renews the lease: the command may run for ExecRequest.Lease without a further Order
	ExecStop = 't' // sends SIGTERM to the command, and SIGKILL after the grace period
	ExecKill = 'k' // kills the command immediately
)

// ExecTimedOut is the exit status of a command that was stopped after MaxTime.
const ExecTimedOut = 124
