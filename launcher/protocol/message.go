package protocol

import (
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// Message is one message: exactly one field is set.
type Message struct {
	// From the driver; Attach and Stop from a visitor too.
	Spec    *Spec    `json:"spec,omitempty"`
	Attach  *Attach  `json:"attach,omitempty"`
	Renew   *Renew   `json:"renew,omitempty"`
	Prepare *Prepare `json:"prepare,omitempty"`
	Check   *Check   `json:"check,omitempty"`
	Start   *Start   `json:"start,omitempty"`
	Stop    *Stop    `json:"stop,omitempty"`
	Drive   *Drive   `json:"conduct,omitempty"`
	End     *End     `json:"end,omitempty"`

	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	Scaled     *Scaled     `json:"scaled,omitempty"` // for a visitor: the agent passes it on

	// From a visitor. The agent passes Scale on to the driver and answers SpecAsk
	// with its Spec.
	Scale   *Scale `json:"scale,omitempty"`
	SpecAsk bool   `json:"spec_ask,omitempty"`

	// From the agent.
	State    *State    `json:"state,omitempty"`
	Renewed  *Renew    `json:"renewed,omitempty"`
	Prepared *Prepared `json:"prepared,omitempty"`
	Checked  *Checked  `json:"checked,omitempty"`
	Started  *Started  `json:"started,omitempty"`
	Exited   *Exit     `json:"exited,omitempty"`
	Said     *Said     `json:"said,omitempty"`
	StopAsk  *Stop     `json:"stop_ask,omitempty"` // a visitor asked this agent to stop the job
	Notice   string    `json:"notice,omitempty"`   // one line for the user
}

// Attach is the first message on every connection except the one that brings a Spec.
// A new driver replaces the one before it. A visitor gets State on each change and
// may ask for Stop.
type Attach struct {
	Driver bool `json:"conductor"` // false: a visitor
}

// Renew keeps the lease of the host for another Spec.Lease. The answer, Renewed,
// carries the same.
//
// Sent is the time of sending by a clock of the driver's, which Clock names. The
// agent compares it with earlier stamps of the same clock, never with its own clock.
// A renewal that took longer on its way than others is worth as much less. Without
// Clock the lease counts from the moment at which the agent reads the message.
type Renew struct {
	Seq   int64         `json:"seq"`
	Clock string        `json:"clock,omitempty"`
	Sent  time.Duration `json:"sent,omitempty"`
}

// Prepare asks for open sockets for the tasks of a generation. The agent opens them
// when nothing of the generation before is left on the host. A host may have no tasks.
type Prepare struct {
	Generation int        `json:"generation"`
	Tasks      []TaskSpec `json:"tasks"`
	GroupRank  int        `json:"groupRank"` // index of the host among those with workers
}

// Prepared tells where the tasks of the host will serve, or the Error.
type Prepared struct {
	Generation int                     `json:"generation"`
	Error      string                  `json:"error,omitempty"`
	Open       map[cluster.Task]string `json:"open,omitempty"`     // listening, inherited by the task
	Reserved   map[cluster.Task]string `json:"reserved,omitempty"` // bound, not listening, for foreign programs
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

// Start starts the tasks of the host. All tasks of the job get the same cluster.
type Start struct {
	Generation int          `json:"generation"`
	Cluster    cluster.Spec `json:"cluster"`
	Foreign    cluster.Spec `json:"foreign"` // reserved addresses, for TF_CONFIG and MASTER_PORT
}

// Started reports that every task of the host was started, or has an Exited that says
// why not.
type Started struct {
	Generation int                  `json:"generation"`
	PIDs       map[cluster.Task]int `json:"pids"`
}

// Exit is the end of a task.
type Exit struct {
	Task       cluster.Task `json:"task"`
	Generation int          `json:"generation"`
	Code       int          `json:"code"`             // exit status; 126, 127 when it could not be started
	Signal     int          `json:"signal,omitempty"` // the signal that ended it, else 0
	Started    bool         `json:"started"`
	Native     bool         `json:"native"`             // it has said hello
	Finished   bool         `json:"finished"`           // it has said finished
	Told       bool         `json:"told"`               // the agent had told it to stop
	Cause      string       `json:"cause,omitempty"`    // why it could not start, or the cause that it reported
	LostPeer   string       `json:"lostPeer,omitempty"` // the peer it blames
	Tail       string       `json:"tail,omitempty"`     // last lines of its stderr, a few KiB
	Time       time.Time    `json:"time"`               // the host's clock
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
	Tasks  []cluster.Task `json:"tasks,omitempty"`
	Grace  time.Duration  `json:"grace"`
	Reason string         `json:"reason,omitempty"`
	Code   int            `json:"code,omitempty"` // the job's exit status, from a visitor

	// SaveTime bounds a save before the end of the job; 0: the job is not saved. From
	// a visitor.
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
	Request int   `json:"request,omitempty"`
	Hold    *Hold `json:"hold,omitempty"`
	Resume  bool  `json:"resume,omitempty"` // save nothing; a chief that holds because of Request or an earlier one makes steps again
}

// Hold says how the job is to continue from a checkpoint.
type Hold struct {
	Workers int      `json:"workers"`
	Leaving []string `json:"leaving,omitempty"` // tasks on hosts that leave
}

// Drive makes this agent the driver of a detached job.
type Drive struct {
	Plan  Plan   `json:"plan"`
	Peers []Peer `json:"peers"` // every agent of the job, this one too, by host index
}

// End asks the agent to end all tasks, record the verdict, delete secrets and end. The
// stream ends when nothing of the job is left on the host.
type End struct {
	Grace   time.Duration `json:"grace"`
	Verdict Verdict       `json:"verdict"`
}

// Scale asks the driver to continue the job on other hosts, after the chief's present
// step. The answer is a Scaled of the same ID. A Scale with an ID that was asked
// before changes nothing a second time.
//
// A Scale without Known changes nothing at all: the answer lists the hosts.
type Scale struct {
	ID       string        `json:"id"`
	Known    int           `json:"known,omitempty"` // how many hosts the job has had, as the visitor knows it
	Join     []Joining     `json:"join,omitempty"`
	Leave    []int         `json:"leave,omitempty"` // host indices
	SaveTime time.Duration `json:"saveTime,omitempty"`
}

// Joining is a host whose agent was started with the next host index. The driver
// gives the indices of its tasks.
type Joining struct {
	HostPlan
	Addr string `json:"addr"` // the agent's own, as in State
}

// Scaled is the answer to Scale. With a Cause nothing was changed, and that is why.
type Scaled struct {
	ID         string        `json:"id"`
	Cause      string        `json:"cause,omitempty"`
	Generation int           `json:"generation,omitempty"` // the generation of the tasks in Hosts
	Hosts      []HostPlan    `json:"hosts,omitempty"`      // all that the job has had, by index
	From       int           `json:"from,omitempty"`       // workers before
	To         int           `json:"to,omitempty"`         // and now
	Step       int64         `json:"step,omitempty"`       // after which the hosts were changed
	Pause      time.Duration `json:"pause,omitempty"`      // from the moment at which the chief stood still to the end of the next step
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

// FetchRequest is the input of "agent fetch", as a line of JSON. The output is the bytes
// of the file, or a HostCheckpoint per line of JSON.
type FetchRequest struct {
	Name string `json:"name"`           // of the checkpoints, under ~/.plx/ckpt
	File string `json:"file,omitempty"` // path below that, with slashes; empty: list the checkpoints
}

// HostCheckpoint is what one host has of a checkpoint: a folder with a manifest.
type HostCheckpoint struct {
	Folder string           `json:"folder"`           // below ~/.plx/ckpt/<name>, with slashes
	Made   time.Time        `json:"made,omitzero"`    // from the manifest
	Files  []CheckpointFile `json:"files,omitempty"`  // those of the manifest; the manifest itself is the last
	Damage string           `json:"damage,omitempty"` // why the manifest is unreadable; empty: it is not
}

// CheckpointFile is one file of a checkpoint.
type CheckpointFile struct {
	Name string `json:"name"`
	Size int64  `json:"size"`           // bytes
	Sum  string `json:"sum"`            // SHA-256, hexadecimal
	Here bool   `json:"here,omitempty"` // the host has a file of that name and size
}
