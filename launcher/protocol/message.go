package protocol

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// Message is the unit that a connection carries. A message has exactly one of
// these fields.
type Message struct {
	// Remote procedure calls to "plx agent start", and the agent's replies.
	// They end when the agent receives the Spec of a job.
	Call  *Call  `json:"call,omitempty"`
	Order *Order `json:"order,omitempty"`
	Piece *Piece `json:"piece,omitempty"`
	Reply *Reply `json:"reply,omitempty"`

	// The driver sends these messages. A visitor (a command that is not the
	// driver) may also send Attach and Stop.
	Spec    *Spec    `json:"spec,omitempty"`
	Attach  *Attach  `json:"attach,omitempty"`
	Renew   *Renew   `json:"renew,omitempty"`
	Prepare *Prepare `json:"prepare,omitempty"`
	Check   *Check   `json:"check,omitempty"`
	Start   *Start   `json:"start,omitempty"`
	Stop    *Stop    `json:"stop,omitempty"`
	Drive   *Drive   `json:"drive,omitempty"`
	End     *End     `json:"end,omitempty"`

	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	Scaled     *Scaled     `json:"scaled,omitempty"` // answer to Scale; an agent that receives it forwards it to its visitors (commands such as plx scale)

	// A visitor (a command that is not the driver) sends these messages. The
	// agent forwards Scale to the driver. The agent itself answers SpecAsk,
	// with the job's Spec.
	Scale   *Scale `json:"scale,omitempty"`
	SpecAsk bool   `json:"spec_ask,omitempty"`

	Look *ActivityRequest `json:"look,omitempty"` // the driver or a visitor sends this message

	// The agent sends these messages.
	State      *State          `json:"state,omitempty"`
	Renewed    *Renew          `json:"renewed,omitempty"`
	Prepared   *Prepared       `json:"prepared,omitempty"`
	Checked    *Checked        `json:"checked,omitempty"`
	Started    *Started        `json:"started,omitempty"`
	Exited     *Exit           `json:"exited,omitempty"`
	TaskReport *TaskMessage    `json:"said,omitempty"`
	StopAsk    *Stop           `json:"stop_ask,omitempty"` // a request to stop the job, from a visitor (a command such as plx stop); the agent forwards it to the driver
	Notice     string          `json:"notice,omitempty"`   // one line of text to show to the user
	Seen       *ActivityReport `json:"seen,omitempty"`

	Logged *Logged `json:"logged,omitempty"` // log output, sent only to the launcher that started the agent

	// Made is the agent's last message to the driver, after all tasks have
	// ended. It counts the files that the tasks made. It may be missing.
	Made *FileCounts `json:"made,omitempty"`
}

// Survey asks an agent for the facts of its host and which of the given files
// the host stores.
type Survey struct {
	Blobs map[string]int64 `json:"blobs"` // size in bytes of each requested file, by its SHA-256
}

// Surveyed is the result of the method DoSurvey.
type Surveyed struct {
	Facts json.RawMessage `json:"facts,omitempty"` // JSON that envsync.ReadFacts parses
	Has   []string        `json:"has,omitempty"`   // SHA-256 of each requested file that the host stores intact
	// Damaged has the SHA-256 of each requested file that the host stores with
	// wrong content.
	Damaged []string `json:"damaged,omitempty"`
	// Locks has the lines of /proc/net/unix that represent locks on GPUs and
	// launches that queue for GPUs.
	Locks string `json:"locks,omitempty"`
}

// Probe asks an agent for the GPUs of its host.
type Probe struct {
	ToolTime time.Duration `json:"toolTime"` // time limit for one run of nvidia-smi; 0 means the default
}

// Has asks an agent whether its host already stores all files of a folder,
// because an earlier job sent them. If Job is set, the agent also creates that
// job's working directory from the files. If the call fails, the caller sends
// the files with Put. If the cause of the failure persists, Put fails too.
type Has struct {
	Manifest string `json:"manifest"` // content hash of the manifest that lists the folder's files
	// Job and Folder name the job whose working directory the agent creates;
	// Folder is the name of the host's folder of that job. Both are empty if
	// the agent creates no working directory.
	Job    string `json:"job,omitempty"`
	Folder string `json:"folder,omitempty"`
}

// CheckName asks an agent whether a new job may use the name Name for its
// checkpoint folder.
type CheckName struct {
	Name string `json:"name"`
}

// Find asks an agent to look for a program on the PATH of the tasks. The agent
// does not take into account changes that a --setup script makes to the PATH.
type Find struct {
	Name Raw   `json:"name"` // file name of the program, without a slash
	Path Raw   `json:"path,omitempty"`
	Env  []Raw `json:"env,omitempty"`
}

// Found is the result of the method DoFind.
type Found struct {
	There   bool `json:"there"`   // true if the program exists and is readable
	Trainer bool `json:"trainer"` // true if the program is linked with plx's trainer
}

// HostJob identifies a job and the name of the host's folder of that job.
type HostJob struct {
	Job    string `json:"job"`
	Folder string `json:"folder"`
}

// EarlyLogs is the largest number of bytes of logs that an agent sends in
// Logged messages.
const EarlyLogs = 64 << 10

// Logged carries a part of a job's first log output, in the format of the
// command "plx agent logs".
type Logged struct {
	Data []byte `json:"data,omitempty"`
	Done bool   `json:"done,omitempty"` // true in the last Logged message: the job has ended, or the next output would exceed EarlyLogs
}

// Attach is the first message on a connection to an agent, unless the
// connection begins with a Spec. If a new driver attaches, it replaces the
// previous driver. A visitor (a command that is not the driver, such as plx
// stop) receives State on each change and may send Stop.
type Attach struct {
	Driver bool `json:"driver"` // true if the sender is the job's driver, false if it is a visitor (a command such as plx stop)
}

// Renew extends the agent's lease by Spec.Lease. The agent answers with
// Renewed, which has the same content.
//
// Sent is the send time by the driver's clock, which Clock names. The agent
// compares Sent only with earlier values of the same clock, never with its own
// clock. If a renewal took longer to arrive than earlier ones, the agent
// shortens the extension by that delay. If Clock is empty, the extension
// starts when the agent reads the message.
type Renew struct {
	Clock string        `json:"clock,omitempty"` // name of the driver's clock; if empty, the lease is extended from the time of receipt
	Sent  time.Duration `json:"sent,omitempty"`  // send time, as the time since the clock named Clock started
}

// Prepare asks an agent to open the sockets for its tasks in a generation (run
// of all tasks). Before that, the agent waits until no process of the previous
// generation is left on the host. Tasks may be empty.
type Prepare struct {
	Generation int        `json:"generation"`
	Tasks      []TaskSpec `json:"tasks"`
	GroupRank  int        `json:"groupRank"` // number of hosts that run workers and have a lower index than the receiving host
}

// Prepared reports the addresses at which the host's tasks will listen, or why
// there are none.
type Prepared struct {
	Generation int                     `json:"generation"`
	Error      string                  `json:"error,omitempty"`    // why the agent could not open the sockets; empty if all are open
	Open       map[cluster.Task]string `json:"open,omitempty"`     // addresses of listening sockets, which the agent passes to the tasks
	Reserved   map[cluster.Task]string `json:"reserved,omitempty"` // addresses that are bound but not listening; they are for programs that do not use plx's trainer
}

// Check asks an agent to connect to other agents of the job at their addresses
// on the data network.
type Check struct {
	Generation int    `json:"generation"`
	Peers      []Peer `json:"peers"`
}

// Peer identifies another agent of the job: its host's index and name, and its
// TCP address on the data network.
type Peer struct {
	Index int    `json:"index"`
	Host  string `json:"host"`
	Addr  string `json:"addr"`
}

// Checked answers Check. It lists the agents that this agent could not reach.
type Checked struct {
	Generation int         `json:"generation"`
	Failures   []Unreached `json:"failures,omitempty"`
}

// Unreached reports why one agent could not connect to another agent, Peer.
type Unreached struct {
	Peer  Peer   `json:"peer"`
	Cause string `json:"cause"`
}

// Start asks an agent to start the tasks that it has prepared. The driver
// sends the same content to all hosts.
type Start struct {
	Generation int       `json:"generation"`
	Addresses  Addresses `json:"addresses"`

	Groups      int `json:"groups,omitempty"`      // number of hosts that run workers in this generation
	Restarts    int `json:"restarts,omitempty"`    // number of restarts of the job so far
	MaxRestarts int `json:"maxRestarts,omitempty"` // largest number of restarts of the job; 0 means that it is never restarted
}

// Started reports that the agent has tried to start every task of its host. If
// it could not start a task, it also sends an Exit with the cause.
type Started struct {
	Generation int                  `json:"generation"`
	PIDs       map[cluster.Task]int `json:"pids"` // process IDs of the tasks that the agent has started
}

// Exit reports that a task has ended, and how.
type Exit struct {
	Task          cluster.Task `json:"task"`
	Generation    int          `json:"generation"`
	Code          int          `json:"code"`               // exit status; 128 + Signal if a signal ended the task; 125 to 127 if the task could not start
	Signal        int          `json:"signal,omitempty"`   // number of the signal that ended the task; 0 if none did
	Started       bool         `json:"started"`            // true if the task's process was started
	Native        bool         `json:"native"`             // true if the task had connected to the agent by the control channel of plx's trainer
	Finished      bool         `json:"finished"`           // true if the task had reported that its work was complete
	StopRequested bool         `json:"told"`               // true if the agent had asked the task to stop
	Cause         string       `json:"cause,omitempty"`    // why the task failed or could not start; empty if unknown
	LostPeer      string       `json:"lostPeer,omitempty"` // task to which this task lost its connection, if this task reported that as the reason of its failure; empty if none
	Tail          string       `json:"tail,omitempty"`     // last few KiB of the task's stderr
	OOMKills      int64        `json:"oomKills,omitempty"` // number of processes that the OOM killer of the host killed while the task ran; 0 if plx killed the task
	OOM           string       `json:"oom,omitempty"`      // evidence that the OOM killer killed this task; empty if there is none
	Shm           string       `json:"shm,omitempty"`      // problem with /dev/shm if the task seems to have lacked shared memory; otherwise empty
	Time          time.Time    `json:"time"`               // time at which the agent noticed the exit, by the host's clock
}

// TaskMessage forwards a message that a task has sent to its agent over the control
// channel of plx's trainer.
type TaskMessage struct {
	Task       cluster.Task           `json:"task"`
	Generation int                    `json:"generation"`
	Message    cluster.ControlMessage `json:"message"`
}

// Stop asks an agent to stop tasks. The agent asks the tasks to end, and after
// Grace kills them and all their descendants. If Stop comes from a visitor (a
// command such as plx stop), the agent forwards it to the driver, which ends
// the whole job.
type Stop struct {
	Tasks []cluster.Task `json:"tasks,omitempty"` // tasks to stop; nil means all tasks
	Grace time.Duration  `json:"grace"`           // time between asking tasks to stop and killing them; 0 kills at once
	// Quit makes the agent send SIGQUIT instead of SIGTERM to Go programs that
	// do not use plx's trainer. Such a program then prints its goroutine stack
	// traces.
	Quit bool `json:"quit,omitempty"`
	// Interrupt means that the user pressed Ctrl-C. Tasks that do not use
	// plx's trainer then get SIGINT first, and SIGTERM after half of Grace.
	Interrupt bool `json:"interrupt,omitempty"`

	Reason string `json:"reason,omitempty"` // reason to record in the verdict; set only by a visitor (a command such as plx stop)
	Code   int    `json:"code,omitempty"`   // exit status of plx launch, set only by a visitor (a command such as plx stop); 0 means 125

	// SaveTime is the time limit for a checkpoint before the job ends. Only a
	// visitor (a command such as plx stop) sets it. 0 means that no checkpoint
	// is taken.
	SaveTime time.Duration `json:"saveTime,omitempty"`
}

// Checkpoint asks the chief (worker 0) to take a checkpoint after its current
// step. The driver sends it to the chief's agent. The answer is the message
// TaskReport with a message of kind checkpoint. If the chief cannot answer, its
// agent answers with a Cause.
//
// If the driver repeats a Checkpoint with the same Request in the same
// generation, the agent repeats the answer and does not ask the chief again.
//
// If Hold is set, the chief pauses after the checkpoint until it receives
// Resume or Stop.
type Checkpoint struct {
	Request int   `json:"request,omitempty"` // number of the request; 0 for the checkpoint before a stop
	Hold    *Hold `json:"hold,omitempty"`    // workers after a change of hosts; nil if the chief continues training after the checkpoint
	Resume  bool  `json:"resume,omitempty"`  // true if the chief is to end the pause that Hold began, in this Request or an earlier one; it then takes no checkpoint
}

// Hold describes with which workers the job will continue after a checkpoint.
type Hold struct {
	Workers int      `json:"workers"`           // number of workers with which the job will continue
	Leaving []string `json:"leaving,omitempty"` // names of the tasks on hosts that leave the job; nil if no host leaves
}

// Drive makes the agent that receives it the driver of a detached job.
type Drive struct {
	Plan  Plan   `json:"plan"`
	Peers []Peer `json:"peers"` // all agents of the job, including the receiver, ordered by host index
}

// End asks an agent to stop all tasks, record the verdict, delete secrets and
// exit. The agent closes the connection when no process of the job is left on
// the host.
type End struct {
	Grace   time.Duration `json:"grace"` // time between asking tasks to stop and killing them; 0 kills at once
	Verdict Verdict       `json:"verdict"`
}

// Scale asks the driver to continue the job on a different set of hosts, after
// the chief's current step. The driver answers with a Scaled that has the same
// ID. If a Scale with the same ID arrives again, the driver does not repeat
// the change.
//
// If Known is 0, the driver changes nothing and only lists the hosts in its
// answer.
type Scale struct {
	ID       string        `json:"id"`
	Known    int           `json:"known,omitempty"`    // number of hosts that have ever belonged to the job, as plx scale knows it; 0 requests only the list of hosts
	Join     []Joining     `json:"join,omitempty"`     // hosts that join the job; nil if none
	Leave    []int         `json:"leave,omitempty"`    // indices of hosts that leave the job; nil if none
	SaveTime time.Duration `json:"saveTime,omitempty"` // time limit for the checkpoint before the change
}

// Joining is a host that joins a running job. Its agent already runs, with the
// next free host index. The driver assigns the indices of the tasks on the
// host.
type Joining struct {
	HostPlan
	Addr string `json:"addr"` // address of the agent on the data network, as in State

	Interface string `json:"interface,omitempty"` // network interface from the host's line in the resource file or from --nic; empty if neither is set
	Env       []Raw  `json:"env,omitempty"`       // environment variables from the host's line in the resource file
}

// Scaled is the answer to Scale. If Cause is set, the driver has changed
// nothing.
type Scaled struct {
	ID         string        `json:"id"`
	Cause      string        `json:"cause,omitempty"`      // why the driver has changed nothing; empty if the change succeeded or Scale only requested the list of hosts
	Generation int           `json:"generation,omitempty"` // number of the generation whose tasks are in Hosts
	Hosts      []HostPlan    `json:"hosts,omitempty"`      // all hosts that have ever belonged to the job, ordered by host index
	From       int           `json:"from,omitempty"`       // number of workers before the change
	To         int           `json:"to,omitempty"`         // number of workers after the change; 0 if nothing was changed
	Step       int64         `json:"step,omitempty"`       // step after which the checkpoint was taken and the hosts were changed
	Pause      time.Duration `json:"pause,omitempty"`      // time from the pause of the chief to the first step on the new hosts
}

// String describes a completed change in one line for the user.
func (s Scaled) String() string {
	return fmt.Sprintf("scaled from %d to %d workers after step %d: paused for %s", s.From, s.To, s.Step, s.Pause.Round(10*time.Millisecond))
}

// After returns a copy of s whose field Pause is pause.
func (s Scaled) After(pause time.Duration) Scaled {
	s.Pause = pause
	return s
}

// Put asks an agent to receive the files of a folder and store them.
type Put struct {
	Program bool `json:"program,omitempty"` // true if the folder contains one executable, which the agent stores under ~/.plx/blobs
	// Job is the job whose working directory the agent creates from the files,
	// and Folder the name of the host's folder of that job. Both are empty if
	// no working directory is to be created.
	Job    string `json:"job,omitempty"`
	Folder string `json:"folder,omitempty"`
}

// Get asks an agent for a folder or a file that was stored by Put.
type Get struct {
	Manifest string `json:"manifest,omitempty"` // content hash of the manifest that lists the folder's files
	Blob     string `json:"blob,omitempty"`     // SHA-256 of the file to get; empty to get the folder
}

// HostCheckpoint describes the part of a checkpoint that one host stores: a
// folder with a manifest.
type HostCheckpoint struct {
	Folder string           `json:"folder"`           // slash-separated path of the folder under ~/.plx/ckpt/<name>
	Made   time.Time        `json:"made,omitzero"`    // creation time in the manifest; zero if the manifest is unreadable
	Files  []CheckpointFile `json:"files,omitempty"`  // files that the manifest lists, followed by the manifest itself; nil if the manifest is unreadable
	Damage string           `json:"damage,omitempty"` // why the manifest is unreadable; empty if it is readable
}

// CheckpointFile describes one file of a checkpoint.
type CheckpointFile struct {
	Name string `json:"name"`
	Size int64  `json:"size"`           // bytes
	Sum  string `json:"sum"`            // SHA-256 of the content, in hexadecimal
	Here bool   `json:"here,omitempty"` // true if the host has a file of this name and size
}
