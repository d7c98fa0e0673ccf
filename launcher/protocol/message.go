package protocol

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// Message is one message: exactly one field is set.
type Message struct {
	// To "plx agent start", any number of times before the Spec of a job.
	Call  *Call  `json:"call,omitempty"`
	Order *Order `json:"order,omitempty"`
	Piece *Piece `json:"piece,omitempty"`
	Reply *Reply `json:"reply,omitempty"`

	// From the driver; Attach and Stop from a visitor too.
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
	Scaled     *Scaled     `json:"scaled,omitempty"` // the agent passes it on to its visitors

	// From a visitor. The agent passes Scale on to the driver and answers SpecAsk
	// with its Spec.
	Scale   *Scale `json:"scale,omitempty"`
	SpecAsk bool   `json:"spec_ask,omitempty"`

	Look *Look `json:"look,omitempty"` // from the driver or a visitor

	// From the agent.
	State    *State    `json:"state,omitempty"`
	Renewed  *Renew    `json:"renewed,omitempty"`
	Prepared *Prepared `json:"prepared,omitempty"`
	Checked  *Checked  `json:"checked,omitempty"`
	Started  *Started  `json:"started,omitempty"`
	Exited   *Exit     `json:"exited,omitempty"`
	Said     *Said     `json:"said,omitempty"`
	StopAsk  *Stop     `json:"stop_ask,omitempty"` // what a visitor of this agent asks of the driver: to stop the job
	Notice   string    `json:"notice,omitempty"`   // one line for the user
	Seen     *Seen     `json:"seen,omitempty"`

	Logged *Logged `json:"logged,omitempty"` // to the launcher that has started the agent

	// Made is the last message to a driver, when no task runs any more. It may not come.
	Made *Made `json:"made,omitempty"`
}

// Survey asks what the host is and which files it has.
type Survey struct {
	Blobs map[string]int64 `json:"blobs"` // sizes in bytes of files, by their SHA-256
}

// Surveyed answers Survey.
type Surveyed struct {
	Facts json.RawMessage `json:"facts,omitempty"` // for envsync.ReadFacts
	Has   []string        `json:"has,omitempty"`   // sums of the files that are there and right
	// Damaged are sums of the files that are there and not right.
	Damaged []string `json:"damaged,omitempty"`
	// Locks are the lines of /proc/net/unix on booked GPUs and on launches that wait for them.
	Locks string `json:"locks,omitempty"`
}

// Probe asks for the host's GPUs.
type Probe struct {
	ToolTime time.Duration `json:"toolTime"` // how long a call of nvidia-smi may take; 0: the default
}

// Has asks whether the host has all files of a folder, since an earlier job had them, and to make
// the job's working directory of them if there is one. An error says that the files are to be sent,
// or that something is wrong which sending them tells.
type Has struct {
	Manifest string `json:"manifest"` // content hash
	// Job is the job whose working directory is made of it, and Folder its folder on the host;
	// both are empty if there is none to make.
	Job    string `json:"job,omitempty"`
	Folder string `json:"folder,omitempty"`
}

// CheckName asks whether a new job could keep its checkpoints under a name.
type CheckName struct {
	Name string `json:"name"`
}

// Find asks for a program on the PATH that tasks will have, unless a setup line changes it.
type Find struct {
	Name Raw   `json:"name"` // without a slash
	Path Raw   `json:"path,omitempty"`
	Env  []Raw `json:"env,omitempty"`
}

// Found answers Find.
type Found struct {
	There   bool `json:"there"`   // there is such a program, and it can be read
	Trainer bool `json:"trainer"` // it links plx's trainer
}

// HostJob names a job and its folder on the host.
type HostJob struct {
	Job    string `json:"job"`
	Folder string `json:"folder"`
}

// EarlyLogs is how many bytes of logs an agent sends at most, if its Spec asks for them.
const EarlyLogs = 64 << 10

// Logged is a part of what "agent logs" would print for a new follower.
type Logged struct {
	Data []byte `json:"data,omitempty"`
	Done bool   `json:"done,omitempty"` // no more come: the job is over, or there is more than EarlyLogs
}

// Attach is the first message on every connection except the one that brings a Spec.
// A new driver replaces the one before it. A visitor gets State on each change and
// may ask for Stop.
type Attach struct {
	Driver bool `json:"driver"` // the sender drives the job; false: the sender is a visitor
}

// Renew keeps the lease of the host for another Spec.Lease. The answer, Renewed,
// carries the same.
//
// Sent is the time of sending by a clock of the driver's, which Clock names. The
// agent compares it with earlier stamps of the same clock, never with its own clock.
// A renewal that took longer on its way than others is worth as much less. Without
// Clock the lease counts from the moment at which the agent reads the message.
type Renew struct {
	Clock string        `json:"clock,omitempty"` // name of the driver's clock; "": none, the lease counts from the receipt
	Sent  time.Duration `json:"sent,omitempty"`  // time of sending, since Clock began
}

// Prepare asks for open sockets for the tasks of a generation. The agent opens them
// when nothing of the generation before is left on the host. A host may have no tasks.
type Prepare struct {
	Generation int        `json:"generation"`
	Tasks      []TaskSpec `json:"tasks"`
	GroupRank  int        `json:"groupRank"` // number of hosts with workers that come before this one
}

// Prepared tells where the tasks of the host will serve, or the Error.
type Prepared struct {
	Generation int                     `json:"generation"`
	Error      string                  `json:"error,omitempty"`    // why there are no sockets; "": there are
	Open       map[cluster.Task]string `json:"open,omitempty"`     // listening sockets, which the tasks inherit
	Reserved   map[cluster.Task]string `json:"reserved,omitempty"` // bound, not listening: for programs without plx's trainer
}

// Check asks the agent to reach the other agents on their data addresses.
type Check struct {
	Generation int    `json:"generation"`
	Peers      []Peer `json:"peers"`
}

// Peer is another agent of the job: its index among the job's hosts, its name for the
// user and its TCP address on the data network.
type Peer struct {
	Index int    `json:"index"`
	Host  string `json:"host"`
	Addr  string `json:"addr"`
}

// Checked lists the peers that could not be reached.
type Checked struct {
	Generation int         `json:"generation"`
	Failures   []Unreached `json:"failures,omitempty"`
}

// Unreached says why a peer could not be reached.
type Unreached struct {
	Peer  Peer   `json:"peer"`
	Cause string `json:"cause"`
}

// Start starts the tasks of the host. All hosts of the job get the same.
type Start struct {
	Generation int       `json:"generation"`
	Addresses  Addresses `json:"addresses"`

	Groups      int `json:"groups,omitempty"`      // number of hosts with workers
	Restarts    int `json:"restarts,omitempty"`    // number of restarts so far
	MaxRestarts int `json:"maxRestarts,omitempty"` // most restarts of the job; 0: none
}

// Started reports that every task of the host was started, or has an Exited that says
// why not.
type Started struct {
	Generation int                  `json:"generation"`
	PIDs       map[cluster.Task]int `json:"pids"` // of the tasks that were started
}

// Exit is the end of a task.
type Exit struct {
	Task       cluster.Task `json:"task"`
	Generation int          `json:"generation"`
	Code       int          `json:"code"`               // exit status; 128 + Signal after a signal; 125 to 127: not started
	Signal     int          `json:"signal,omitempty"`   // signal that ended the task; 0: none
	Started    bool         `json:"started"`            // the task's process was started
	Native     bool         `json:"native"`             // the task had sent hello, so it used plx's trainer
	Finished   bool         `json:"finished"`           // the task had said that its work was done
	Told       bool         `json:"told"`               // the agent had told the task to end
	Cause      string       `json:"cause,omitempty"`    // why the task could not start or failed; "": nobody has said so
	LostPeer   string       `json:"lostPeer,omitempty"` // the peer whose loss the task blames for its failure; "": none
	Tail       string       `json:"tail,omitempty"`     // last lines of the task's stderr, a few KiB
	OOMKills   int64        `json:"oomKills,omitempty"` // processes that the host's kernel killed for want of memory while the task ran; 0: none, or plx killed the task
	OOM        string       `json:"oom,omitempty"`      // what shows that the task is one of them; "": nothing does
	Shm        string       `json:"shm,omitempty"`      // what is wrong with /dev/shm, if the task's end looks like want of shared memory; "": nothing, or it does not
	Time       time.Time    `json:"time"`               // when the agent noted the end, by the host's clock
}

// Said passes on a message of a task's control channel.
type Said struct {
	Task       cluster.Task           `json:"task"`
	Generation int                    `json:"generation"`
	Message    cluster.ControlMessage `json:"message"`
}

// Stop ends tasks. The agent tells them, and after Grace kills them with all their
// descendants. Without Tasks it ends all. From a visitor it asks the driver to end
// the job.
type Stop struct {
	Tasks []cluster.Task `json:"tasks,omitempty"` // nil: all tasks
	Grace time.Duration  `json:"grace"`           // from telling tasks to end to killing them; 0: kill at once
	// Quit has Go programs that do not use plx's trainer print their stacks: they get SIGQUIT
	// in place of SIGTERM.
	Quit bool `json:"quit,omitempty"`
	// Interrupt has tasks that do not use plx's trainer get SIGINT first, and SIGTERM after
	// half of Grace: the user has pressed Ctrl-C.
	Interrupt bool `json:"interrupt,omitempty"`

	Reason string `json:"reason,omitempty"` // for the verdict; from a visitor
	Code   int    `json:"code,omitempty"`   // plx's exit status, from a visitor; 0: the driver takes 125

	// SaveTime bounds the checkpoint before the end of the job; from a visitor. 0:
	// none is made.
	SaveTime time.Duration `json:"saveTime,omitempty"`
}

// Checkpoint asks the chief, a task of the agent's, to save after its present step.
// The answer is a Said of kind checkpoint. It is the chief's or, if the chief cannot
// answer, the agent's with a Cause. If the driver asks again in the same generation
// the agent does not ask the chief twice and answers the same. Another Request is
// another question.
//
// With Hold the chief makes no further step after the save, until Resume or Stop.
type Checkpoint struct {
	Request int   `json:"request,omitempty"` // number of the request; 0 for the checkpoint before a stop
	Hold    *Hold `json:"hold,omitempty"`    // nil: the chief goes on after the checkpoint
	Resume  bool  `json:"resume,omitempty"`  // save nothing: a chief that holds for this Request or an earlier one goes on
}

// Hold says how the job is to continue from a checkpoint.
type Hold struct {
	Workers int      `json:"workers"`           // number of workers with which the job continues
	Leaving []string `json:"leaving,omitempty"` // names of tasks on hosts that leave; nil: no host leaves
}

// Drive makes this agent the driver of a detached job.
type Drive struct {
	Plan  Plan   `json:"plan"`
	Peers []Peer `json:"peers"` // all agents of the job with this one, in the order of host indices
}

// End asks the agent to end all tasks, record the verdict, delete secrets and end. The
// stream ends when nothing of the job is left on the host.
type End struct {
	Grace   time.Duration `json:"grace"` // from telling tasks to end to killing them; 0: they are killed at once
	Verdict Verdict       `json:"verdict"`
}

// Scale asks the driver to continue the job on other hosts, after the chief's present
// step. The answer is a Scaled of the same ID. A Scale with an ID that was asked
// before changes nothing a second time.
//
// A Scale without Known changes nothing at all: the answer lists the hosts.
type Scale struct {
	ID       string        `json:"id"`
	Known    int           `json:"known,omitempty"`    // number of hosts that the job has had; 0: only list the hosts
	Join     []Joining     `json:"join,omitempty"`     // hosts that join; nil: none
	Leave    []int         `json:"leave,omitempty"`    // indices of hosts that leave; nil: none
	SaveTime time.Duration `json:"saveTime,omitempty"` // bounds the checkpoint before the change
}

// Joining is a host whose agent was started with the next host index. The driver
// gives the indices of its tasks.
type Joining struct {
	HostPlan
	Addr string `json:"addr"` // address of the agent on the data network, as in State

	Interface string `json:"interface,omitempty"` // as the host's line names it, or --nic did; "": neither did
	Env       []Raw  `json:"env,omitempty"`       // variables that the host's line sets
}

// Scaled is the answer to Scale. With a Cause nothing was changed, and that is why.
type Scaled struct {
	ID         string        `json:"id"`
	Cause      string        `json:"cause,omitempty"`      // why nothing was changed; "": changed, or only listed
	Generation int           `json:"generation,omitempty"` // number of the generation whose tasks Hosts shows
	Hosts      []HostPlan    `json:"hosts,omitempty"`      // all hosts that the job has had, in the order of their indices
	From       int           `json:"from,omitempty"`       // number of workers before the change
	To         int           `json:"to,omitempty"`         // number of workers after the change; 0: nothing was changed
	Step       int64         `json:"step,omitempty"`       // step after which the hosts were changed
	Pause      time.Duration `json:"pause,omitempty"`      // from when the chief stood still until the next step was made
}

// String is a line for the user.
func (s Scaled) String() string {
	return fmt.Sprintf("scaled from %d to %d workers after step %d: paused for %s", s.From, s.To, s.Step, s.Pause.Round(10*time.Millisecond))
}

// After returns the answer with the pause that the change took.
func (s Scaled) After(pause time.Duration) Scaled {
	s.Pause = pause
	return s
}

// Put asks an agent to take the files of a folder.
type Put struct {
	Program bool `json:"program,omitempty"` // the only file becomes a blob
	// Job is the job whose working directory is made of them, and Folder its folder on the host; both
	// are empty if there is none to make.
	Job    string `json:"job,omitempty"`
	Folder string `json:"folder,omitempty"`
}

// Get asks an agent for what was put there: a folder, or a blob.
type Get struct {
	Manifest string `json:"manifest,omitempty"` // content hash of the folder's
	Blob     string `json:"blob,omitempty"`     // content hash; "": the folder is meant
}

// HostCheckpoint is what one host has of a checkpoint: a folder with a manifest.
type HostCheckpoint struct {
	Folder string           `json:"folder"`           // path below ~/.plx/ckpt/<name>, with slashes
	Made   time.Time        `json:"made,omitzero"`    // time from the manifest; zero: the manifest is unreadable
	Files  []CheckpointFile `json:"files,omitempty"`  // those of the manifest, the manifest last; nil: it is unreadable
	Damage string           `json:"damage,omitempty"` // why the manifest is unreadable; empty: it is readable
}

// CheckpointFile is one file of a checkpoint.
type CheckpointFile struct {
	Name string `json:"name"`
	Size int64  `json:"size"`           // bytes
	Sum  string `json:"sum"`            // SHA-256, hexadecimal
	Here bool   `json:"here,omitempty"` // the host has a file of this name and size
}
