package protocol

import (
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// Spec is all that an agent needs to know of its job. It travels on a stream
// only: it holds the user's environment and the job's secret.
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

	// Tasks are those of generation 0, whose folders are filled before the
	// agent runs; what is started is what Prepare names. WorldSize is the
	// number of workers in generation 0.
	Tasks     []TaskSpec `json:"tasks"`
	WorldSize int        `json:"worldSize"`
	Bind      bool       `json:"bind"` // bind workers to their share of the cores

	DataAddr string        `json:"dataAddr"` // address (no port) other hosts dial
	PortLow  int           `json:"portLow"`  // 0, 0: any port
	PortHigh int           `json:"portHigh"`
	Lease    time.Duration `json:"lease"`
	Grace    time.Duration `json:"grace"`
	Freeze   time.Duration `json:"freeze"` // a task without heartbeats for as long is killed; 0: never
	Detached bool          `json:"detached"`

	// SaveTime bounds the save that comes before the end of a job whose host
	// is to be taken away. 0: none is made.
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

// State is what an agent knows of its part of the job. It is also the content
// of state.json in the host's folder (0600), which outlives the agent.
type State struct {
	Job        string `json:"job"`
	Name       string `json:"name,omitempty"`
	Host       string `json:"host"`
	HostIndex  int    `json:"hostIndex"`
	Folder     string `json:"folder"` // the host's folder under ~/.plx/jobs/<job>/
	Binary     string `json:"binary"` // the agent's own executable, ~/.plx/blobs/<sha256>
	Phase      Phase  `json:"phase"`
	Generation int    `json:"generation"`
	Least      int    `json:"least,omitempty"` // generations before this one are over
	Addr       string `json:"addr"`            // the agent's own TCP address on the data network
	Socket     string `json:"socket,omitempty"`
	Guardian   int    `json:"guardian"`   // pid
	Supervisor int    `json:"supervisor"` // pid
	// Machine tells the host apart from others that share its home folder,
	// and from itself before a restart; the start times, in clock ticks,
	// tell the two processes from later ones with their pids.
	Machine         string              `json:"machine,omitempty"`
	GuardianStart   uint64              `json:"guardianStart,omitempty"`
	SupervisorStart uint64              `json:"supervisorStart,omitempty"`
	Lease           time.Duration       `json:"lease,omitempty"`
	Detached        bool                `json:"detached,omitempty"`
	Tasks           map[string]*TaskNow `json:"tasks,omitempty"` // by Task.String
	JobPhase        Phase               `json:"jobPhase,omitempty"`
	Verdict         *Verdict            `json:"verdict,omitempty"`
	Unkillable      []int               `json:"unkillable,omitempty"` // pids that outlived SIGKILL
	Started         time.Time           `json:"started"`

	Checkpoints string `json:"checkpoints,omitempty"` // as in Spec

	// Laid is the present layout, of an agent that conducts a job which is not
	// in its first generation any more.
	Laid *Layout `json:"laid,omitempty"`
}

// TaskNow is one task's state: running when it has a pid and no exit.
type TaskNow struct {
	PID    int   `json:"pid,omitempty"`
	Native bool  `json:"native,omitempty"`
	Step   int64 `json:"step,omitempty"`
	Bears  bool  `json:"bears,omitempty"` // it said so
	// Word is what it said last of its steps.
	Word *cluster.ControlMessage `json:"word,omitempty"`
	// Failed is its word that it fails, which may come long before its exit.
	Failed *cluster.ControlMessage `json:"failed,omitempty"`
	Exit   *Exit                   `json:"exit,omitempty"`
}

// Plan is what a conductor needs to run a job.
type Plan struct {
	Job          string        `json:"job"`
	Hosts        []HostPlan    `json:"hosts"` // by host index
	Grace        time.Duration `json:"grace"`
	Settle       time.Duration `json:"settle"`       // how long failures are collected before one is blamed
	StartTimeout time.Duration `json:"startTimeout"` // until every task of a generation has started
	MaxTime      time.Duration `json:"maxTime"`      // 0: no end
	Lease        time.Duration `json:"lease"`        // within it a host without a connection is back or Lost
	Restarts     Restarts      `json:"restarts"`
}

// HostPlan is one host of a plan.
type HostPlan struct {
	Host  string     `json:"host"`
	Tasks []TaskSpec `json:"tasks"`          // in generation 0, in order of their indices
	Seat  bool       `json:"seat,omitempty"` // the conductor runs here: without it nothing goes on

	Folder string `json:"folder,omitempty"` // as in Spec
	Left   bool   `json:"left,omitempty"`   // it is no host of the job any more
	Line   string `json:"line,omitempty"`   // as in a resource file
	Binary string `json:"binary,omitempty"` // the agent's, relative to the home
}

// Layout says where the tasks of a generation run.
type Layout struct {
	Generation int        `json:"generation"`
	Hosts      []HostPlan `json:"hosts"` // all that the job has had, by index
}

// Restarts says when a job that fails is begun anew on the hosts that are left.
type Restarts struct {
	Max        int           `json:"max"`        // in all; 0: none
	PerHour    int           `json:"perHour"`    // 0: as many as Max allows
	MinWorkers int           `json:"minWorkers"` // it takes; 0: as many as the job began with
	WaitHost   time.Duration `json:"waitHost"`   // for hosts to come back when fewer are left
	Backoff    time.Duration `json:"backoff"`    // before the first restart; twice as long before each next
	Revive     bool          `json:"revive"`     // the conductor can start an agent on a host that has none any more
}

// Verdict is how a job ended.
type Verdict struct {
	Code       int      `json:"code"`              // plx's exit status
	Reason     string   `json:"reason"`            // one line: "done", "stopped by ...", "worker:3 on gpu01 exited with 2"
	First      *Exit    `json:"first,omitempty"`   // the task that failed first, if a task did
	Host       string   `json:"host,omitempty"`    // where
	Victims    []string `json:"victims,omitempty"` // tasks that failed because a peer did
	Notices    []string `json:"notices,omitempty"`
	Generation int      `json:"generation,omitempty"` // the last one that was begun
	Stepped    bool     `json:"stepped,omitempty"`    // a task has said that it made a step

	Saved *Saved `json:"saved,omitempty"` // what came of the save that a stop asked for; nil: none was asked for
}

// Saved is what came of a save: a complete checkpoint of Step or, with a
// Cause, none.
type Saved struct {
	Step  int64  `json:"step"`
	Cause string `json:"cause,omitempty"`
}
