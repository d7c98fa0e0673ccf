package protocol

import (
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// Message is exactly one of its fields.
type Message struct {
	// From the conductor, or a visitor (Attach, Stop).
	Spec    *Spec    `json:"spec,omitempty"`
	Attach  *Attach  `json:"attach,omitempty"`
	Renew   *Renew   `json:"renew,omitempty"`
	Prepare *Prepare `json:"prepare,omitempty"`
	Check   *Check   `json:"check,omitempty"`
	Start   *Start   `json:"start,omitempty"`
	Stop    *Stop    `json:"stop,omitempty"`
	Conduct *Conduct `json:"conduct,omitempty"`
	End     *End     `json:"end,omitempty"`

	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	Scaled     *Scaled     `json:"scaled,omitempty"` // the agent passes it on to its visitors

	// From a visitor: the agent passes Scale on to the conductor, and answers
	// SpecAsk with its Spec.
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

// Attach is the first message on every connection but the one that brings a
// Spec. A new conductor takes the place of the one before it. A visitor gets
// State on each change and may ask for Stop.
type Attach struct {
	Conductor bool `json:"conductor"`
}

// Renew keeps the lease of the host for another Spec.Lease; the answer,
// Renewed, carries the same.
//
// Sent is when it was sent by a clock of the sender's, which Clock names. The
// agent compares it with those before it by the same clock, never with its
// own: one that took longer on its way than others is worth as much less.
// Without Clock the lease counts from when the message is read.
type Renew struct {
	Seq   int64         `json:"seq"`
	Clock string        `json:"clock,omitempty"`
	Sent  time.Duration `json:"sent,omitempty"`
}

// Prepare asks for open sockets for the tasks of a generation, once nothing of
// the one before is left on the host. A host may have no tasks.
type Prepare struct {
	Generation int        `json:"generation"`
	Tasks      []TaskSpec `json:"tasks"`
	GroupRank  int        `json:"groupRank"` // index of the host among those with workers
}

// Prepared tells where the tasks of the host will serve.
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

// Peer is another agent of the job: its index among the job's hosts, its
// name for the user and its TCP address on the data network.
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

// Start starts the tasks of the host, all with one cluster.
type Start struct {
	Generation int          `json:"generation"`
	Cluster    cluster.Spec `json:"cluster"`
	Foreign    cluster.Spec `json:"foreign"` // reserved addresses, for TF_CONFIG and MASTER_PORT
}

// Started tells that every task of the host was started, or has an Exited
// that says why not.
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
	Native     bool         `json:"native"`             // it said hello
	Finished   bool         `json:"finished"`           // it said finished
	Told       bool         `json:"told"`               // it had been told to stop before
	Kept       bool         `json:"kept,omitempty"`     // its process is there and waits for the next generation
	Cause      string       `json:"cause,omitempty"`    // why it could not start, or what it said with failed
	LostPeer   string       `json:"lostPeer,omitempty"` // the peer it blames
	Tail       string       `json:"tail,omitempty"`     // last lines of its stderr, a few KiB
	Time       time.Time    `json:"time"`               // the host's clock
}

// Said passes on what a task said on its control channel.
type Said struct {
	Task       cluster.Task           `json:"task"`
	Generation int                    `json:"generation"`
	Message    cluster.ControlMessage `json:"message"`
}

// Stop ends tasks: told, given Grace, then killed with all their
// descendants. No tasks named: all. From a visitor it asks the conductor to
// end the job.
type Stop struct {
	Tasks  []cluster.Task `json:"tasks,omitempty"`
	Grace  time.Duration  `json:"grace"`
	Reason string         `json:"reason,omitempty"`
	Code   int            `json:"code,omitempty"` // the job's exit status, from a visitor

	// Keep lets a process stay that can be a task of the next generation: its
	// Exit says so.
	Keep bool `json:"keep,omitempty"`

	// SaveTime has the job saved first, and bounds that. From a visitor.
	SaveTime time.Duration `json:"saveTime,omitempty"`
}

// Checkpoint has the chief, a task of the agent's, save at its next step
// boundary. The answer is a Said of kind checkpoint: the chief's own or, where
// that cannot answer, the agent's with a Cause. Asked again in the same
// generation, the agent does not ask the chief twice and answers the same.
//
// With Hold the chief takes no further step once it has saved, until it is asked
// to Resume or told to stop. Another Request is another question.
type Checkpoint struct {
	Request int   `json:"request,omitempty"`
	Hold    *Hold `json:"hold,omitempty"`
	Resume  bool  `json:"resume,omitempty"` // save nothing, go on if it was held by Request or one before
}

// Hold says how the job is to go on from a checkpoint.
type Hold struct {
	Workers int      `json:"workers"`
	Leaving []string `json:"leaving,omitempty"` // tasks whose hosts leave
}

// Conduct makes this agent the conductor of a detached job.
type Conduct struct {
	Plan  Plan   `json:"plan"`
	Peers []Peer `json:"peers"` // every agent of the job, this one too, by host index
}

// End ends all tasks, records the verdict, deletes secrets and ends the
// agent. The stream ends once nothing of the job is left on the host.
type End struct {
	Grace   time.Duration `json:"grace"`
	Verdict Verdict       `json:"verdict"`
}
