package protocol

import (
	"encoding/base64"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// Spec is all that an agent needs to know of its job. It travels on a stream only
// and is never written to disk: it holds the user's environment and the secret.
type Spec struct {
	Job       string `json:"job"`
	Name      string `json:"name"`      // the user's name for the job, or ""
	Host      string `json:"host"`      // as the resource file names it
	HostIndex int    `json:"hostIndex"` // place among the job's hosts
	Folder    string `json:"folder"`    // name of the host's folder under ~/.plx/jobs/<job>/

	// Checkpoints is the name under ~/.plx/ckpt by which a later job finds
	// this one's checkpoints.
	Checkpoints string `json:"checkpoints"`

	Command  Command  `json:"command"`
	Env      []Raw    `json:"env"` // the user's NAME=VALUE, any bytes but NUL
	Archives []string `json:"archives,omitempty"`
	LogLevel string   `json:"logLevel"`
	Secret   []byte   `json:"secret"`

	// Tasks are those of generation 0, whose folders are filled before the agent
	// runs. The agent starts the tasks that Prepare names. WorldSize is the number of
	// workers in generation 0.
	Tasks     []TaskSpec `json:"tasks"`
	WorldSize int        `json:"worldSize"`
	Bind      bool       `json:"bind"` // bind workers to their share of the cores

	DataAddr string        `json:"dataAddr"` // address (no port) other hosts dial
	PortLow  int           `json:"portLow"`  // 0, 0: any port
	PortHigh int           `json:"portHigh"`
	Lease    time.Duration `json:"lease"`
	Grace    time.Duration `json:"grace"`
	Freeze   time.Duration `json:"freeze"` // the agent kills a task that sends no heartbeat for so long; 0: never
	Detached bool          `json:"detached"`

	// SaveTime bounds the save before the end of a job whose host is to be taken
	// away. 0: the job ends without one.
	SaveTime time.Duration `json:"saveTime"`
}

// Command is what every task runs. Exactly one of Blob and Name is set.
type Command struct {
	Blob  string `json:"blob,omitempty"` // content hash of a shipped executable
	Base  Raw    `json:"base,omitempty"` // file name of that executable, for argv[0]
	Name  Raw    `json:"name,omitempty"` // found on the host's PATH
	Args  []Raw  `json:"args,omitempty"` // any bytes but NUL
	Setup Raw    `json:"setup,omitempty"`
	Chdir Raw    `json:"chdir,omitempty"` // "": the task's own folder; relative: to the home
	Path  Raw    `json:"path,omitempty"`  // put before the host's PATH
}

// TaskSpec is one task of the host.
type TaskSpec struct {
	Task      cluster.Task `json:"task"`
	Devices   string       `json:"devices"` // CUDA_VISIBLE_DEVICES; "" hides every GPU
	LocalRank int          `json:"localRank"`
}

// Workers counts the workers among tasks.
func Workers(tasks []TaskSpec) int {
	n := 0
	for _, t := range tasks {
		if t.Task.Role == cluster.Worker {
			n++
		}
	}
	return n
}

// Phase is what a job or an agent is doing.
type Phase string

// The phases, in order.
const (
	Idle     Phase = "idle"     // agent up, nothing prepared
	Ready    Phase = "ready"    // sockets open
	Running  Phase = "running"  // tasks started
	Stopping Phase = "stopping" // End or lease ran out
	Over     Phase = "over"     // verdict recorded
)

// State is what an agent knows of its part of the job. It is also the content of
// state.json in the host's folder (0600), which outlives the agent.
type State struct {
	Job        string `json:"job"`
	Name       string `json:"name,omitempty"` // the user's name for the job
	Host       string `json:"host"`
	HostIndex  int    `json:"hostIndex"`
	Folder     string `json:"folder"` // the host's folder under ~/.plx/jobs/<job>/
	Binary     string `json:"binary"` // the agent's own executable, ~/.plx/blobs/<sha256>
	Phase      Phase  `json:"phase"`
	Generation int    `json:"generation"`      // the last one that was prepared
	Least      int    `json:"least,omitempty"` // the agent prepares no generation before this one: they are over
	Addr       string `json:"addr"`            // the agent's own TCP address on the data network
	Processes

	Lease       time.Duration       `json:"lease,omitempty"`
	Detached    bool                `json:"detached,omitempty"`
	Tasks       map[string]*TaskNow `json:"tasks,omitempty"`       // by Task.String
	JobPhase    Phase               `json:"jobPhase,omitempty"`    // of the whole job, if this agent drives it
	Verdict     *Verdict            `json:"verdict,omitempty"`     // nil until the agent ends
	Unkillable  []int               `json:"unkillable,omitempty"`  // pids that outlived SIGKILL
	Started     time.Time           `json:"started"`               // when the agent was, by the host's clock
	Checkpoints string              `json:"checkpoints,omitempty"` // as in Spec

	// Laid is the present layout, if this agent drives a job that is no longer in
	// its first generation.
	Laid *Layout `json:"laid,omitempty"`
}

// Processes are those of an agent. Pids and start times, in clock ticks, tell them
// from later processes.
type Processes struct {
	Socket          string `json:"socket,omitempty"` // name of the agent's local socket
	Watchdog        int    `json:"guardian"`         // pid
	WatchdogStart   uint64 `json:"guardianStart,omitempty"`
	Supervisor      int    `json:"supervisor"` // pid
	SupervisorStart uint64 `json:"supervisorStart,omitempty"`

	// Machine tells the host from others that share its home folder, and from itself
	// before it was started again.
	Machine string `json:"machine,omitempty"`
}

// TaskNow is one task's state. The task runs if it has a PID and no Exit.
type TaskNow struct {
	PID           int   `json:"pid,omitempty"`
	Native        bool  `json:"native,omitempty"`
	Step          int64 `json:"step,omitempty"`
	ToleratesLoss bool  `json:"bears,omitempty"` // it is the chief and has said so
	// Word is the last message that told a step; nil: none did.
	Word *cluster.ControlMessage `json:"word,omitempty"`
	// Failed is its report that it fails, which may come long before its exit; nil:
	// there was none.
	Failed *cluster.ControlMessage `json:"failed,omitempty"`
	Exit   *Exit                   `json:"exit,omitempty"`
}

// Plan is what a driver needs to run a job.
type Plan struct {
	Job          string        `json:"job"`
	Hosts        []HostPlan    `json:"hosts"` // by host index
	Grace        time.Duration `json:"grace"`
	Settle       time.Duration `json:"settle"`       // how long failures are collected before one is blamed
	StartTimeout time.Duration `json:"startTimeout"` // within it every task of a generation has started
	MaxTime      time.Duration `json:"maxTime"`      // 0: no end
	Lease        time.Duration `json:"lease"`        // a host without a connection for so long is Lost
	Restarts     Restarts      `json:"restarts"`
}

// HostPlan is one host of a plan.
type HostPlan struct {
	Host   string     `json:"host"`
	Tasks  []TaskSpec `json:"tasks"`          // in generation 0, in order of their indices
	Drives bool       `json:"seat,omitempty"` // the driver runs here: the job ends when the host is lost

	Folder string `json:"folder,omitempty"` // as in Spec
	Left   bool   `json:"left,omitempty"`   // it no longer belongs to the job
	Line   string `json:"line,omitempty"`   // as in a resource file
	Binary string `json:"binary,omitempty"` // the agent's, relative to the home
}

// Layout says where the tasks of a generation run.
type Layout struct {
	Generation int        `json:"generation"`
	Hosts      []HostPlan `json:"hosts"` // all that ever belonged to the job, by index
}

// Restarts says when a job that fails is restarted on the hosts that are left.
type Restarts struct {
	Max        int           `json:"max"`        // restarts in all; 0: none
	PerHour    int           `json:"perHour"`    // restarts within an hour; 0: as many as Max allows
	MinWorkers int           `json:"minWorkers"` // that a generation needs; 0: as many as the job began with
	WaitHost   time.Duration `json:"waitHost"`   // how long to wait for lost hosts if fewer workers are left
	Backoff    time.Duration `json:"backoff"`    // before the first restart; twice as long before each next
	Revive     bool          `json:"revive"`     // the driver can start a new agent on a host that has lost its own
}

// Verdict is how a job ended.
type Verdict struct {
	Code       int      `json:"code"`              // plx's exit status
	Reason     string   `json:"reason"`            // one line: "done", "stopped by ...", "worker:3 on gpu01 exited with 2"
	First      *Exit    `json:"first,omitempty"`   // the task that failed first, if a task did
	Host       string   `json:"host,omitempty"`    // where
	Victims    []string `json:"victims,omitempty"` // tasks that failed because a peer did
	Notices    []string `json:"notices,omitempty"`
	Generation int      `json:"generation,omitempty"` // the last one that began
	Stepped    bool     `json:"stepped,omitempty"`    // a task has made a step, in any generation

	Saved *Saved `json:"saved,omitempty"` // result of the save that a stop asked for; nil: no save was asked for
}

// Adding returns the verdict with text added to its reason.
func (v Verdict) Adding(text string) Verdict {
	v.Reason += text
	return v
}

// Saved is the result of a save: a complete checkpoint after Step, or none, with a
// Cause.
type Saved struct {
	Step  int64  `json:"step"`
	Cause string `json:"cause,omitempty"`
}

// Raw is a string of any bytes. JSON strings hold text only and would change
// the rest, so it travels in base64.
type Raw string

// MarshalText encodes r.
func (r Raw) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, []byte(r)), nil
}

// UnmarshalText decodes what MarshalText wrote.
func (r *Raw) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.AppendDecode(nil, text)
	*r = Raw(b)
	return err
}
