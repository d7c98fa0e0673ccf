package protocol

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// Spec is all that an agent needs to know of its job. It travels on a stream only
// and is never written to disk: it holds the user's environment and the secret.
type Spec struct {
	Job       string `json:"job"`
	Name      string `json:"name"`      // the user's name for the job, or ""
	Host      string `json:"host"`      // as the resource file names it
	HostIndex int    `json:"hostIndex"` // index among the job's hosts
	Folder    string `json:"folder"`    // name of the host's folder under ~/.plx/jobs/<job>/

	// Checkpoints is the name under ~/.plx/ckpt by which a later job finds
	// this one's checkpoints.
	Checkpoints string `json:"checkpoints"`

	Command  Command  `json:"command"`
	Env      []Raw    `json:"env"`                // the user's NAME=VALUE, any bytes but NUL; of equal names the last counts
	OwnEnv   int      `json:"ownEnv,omitempty"`   // number of elements at the end of Env that the host's line sets
	Copied   string   `json:"copied,omitempty"`   // content hash of the manifest of what each task's folder begins with; "": it is empty, or there is Workdir
	Workdir  string   `json:"workdir,omitempty"`  // content hash of the manifest of the folder that the host's tasks run in; "": each has its own
	LogLevel string   `json:"logLevel"`           // PLX_LOG_LEVEL of the tasks
	LogLimit int64    `json:"logLimit,omitempty"` // bytes of disk that the output of a task may take; 0: no limit
	Metrics  []string `json:"metrics,omitempty"`  // the user's NAME=REGEXP for values in the output of tasks, as metrics.ParsePatterns reads them
	Secret   []byte   `json:"secret"`             // by which the job's agents and tasks authenticate each other
	TLS      bool     `json:"tls,omitempty"`      // agents and plx's trainer encrypt what leaves a host

	Outputs []Output `json:"outputs,omitempty"` // files that the job makes

	// Tasks are those of generation 0, whose folders are filled before the agent
	// runs. The agent starts the tasks that Prepare names. WorldSize is the number of
	// workers in generation 0.
	Tasks     []TaskSpec `json:"tasks"`
	WorldSize int        `json:"worldSize"`
	Bind      bool       `json:"bind"` // bind workers to their share of the cores
	// Claims is what the job books on the host, until the agent has ended.
	Claims []Claim `json:"claims,omitempty"`
	// Ticket is the launch's in the queues for GPUs: launches that wait and have earlier
	// ones come first.
	Ticket string `json:"ticket,omitempty"`

	DataAddr string `json:"dataAddr"` // address, without a port, at which other hosts reach this one
	// Interface is the network interface that the user chose for DataAddr. "": none was
	// chosen. JobInterface is the choice for hosts whose lines make none.
	Interface    string `json:"interface,omitempty"`
	JobInterface string `json:"jobInterface,omitempty"`

	PortLow  int           `json:"portLow"`  // first port for the host's sockets; 0 with PortHigh 0: any port
	PortHigh int           `json:"portHigh"` // last port for the host's sockets
	Lease    time.Duration `json:"lease"`    // how long the tasks may run without a Renew; 0: for ever
	Grace    time.Duration `json:"grace"`    // from telling tasks to end to killing them; 0: kill at once
	Freeze   time.Duration `json:"freeze"`   // silence after which the agent kills a task that has sent hello; 0: never
	Detached bool          `json:"detached"` // an agent drives the job, not the launcher
	Logs     bool          `json:"logs"`     // the agent sends the first EarlyLogs bytes of logs
	// Hang is HangPlan.Timeout: tasks are measured often enough for it.
	Hang time.Duration `json:"hang,omitempty"`

	// Placing and StartTimeout are those of the launch, for hosts that join the job.
	Placing      Placing       `json:"placing"`
	StartTimeout time.Duration `json:"startTimeout"` // bounds the start of all tasks of a generation

	// Imports are modules of Python that a host must be able to import. Nil: none.
	Imports []string `json:"imports,omitempty"`
	// SetupTime bounds Command.Setup on a host, if its tasks do not run it. 0: no limit.
	SetupTime time.Duration `json:"setupTime,omitempty"`

	// SaveTime bounds the save before the end of a job whose host is to be taken
	// away. 0: the job ends without one.
	SaveTime time.Duration `json:"saveTime"`
}

// EnvOf returns the user's variables for a host whose line sets own.
func (s Spec) EnvOf(own []string) []Raw {
	shared := s.Env[:max(0, len(s.Env)-s.OwnEnv)]
	return append(slices.Clone(shared), Raws(own)...)
}

// Placing is how the user wants the tasks of a job placed, beside the resource file.
type Placing struct {
	Workers     int      `json:"workers,omitempty"`     // in the whole job; 0: one per device
	PerHost     int      `json:"perHost,omitempty"`     // workers on each host; 0: one per device
	Servers     []string `json:"servers,omitempty"`     // hosts that get a server; nil: every host with a worker
	NoServers   bool     `json:"noServers,omitempty"`   // no host gets a server
	VisibleHost bool     `json:"visibleHost,omitempty"` // a worker sees the devices of all workers of its host
	ShareGPUs   bool     `json:"shareGPUs,omitempty"`   // other jobs may use the same GPUs
}

// Command is what every task runs. Exactly one of Blob and Name is set.
type Command struct {
	Blob  string `json:"blob,omitempty"`  // content hash of a shipped executable
	Base  Raw    `json:"base,omitempty"`  // file name of the executable in Blob, for argv[0]
	Name  Raw    `json:"name,omitempty"`  // a command to find on the host's PATH
	Args  []Raw  `json:"args,omitempty"`  // any bytes but NUL
	Setup Raw    `json:"setup,omitempty"` // shell line to run before the program; "": none
	// SetupDone says that "agent exec" has run Setup for all tasks of the host. What it
	// changed is in the job's folder. Otherwise every task runs Setup.
	SetupDone bool  `json:"setupDone,omitempty"`
	Chdir     Raw   `json:"chdir,omitempty"` // working folder; "": the task's own; a relative one is below the home
	Path      Raw   `json:"path,omitempty"`  // put before the host's PATH, with a colon; "": nothing
	Venv      *Venv `json:"venv,omitempty"`  // the virtual environment to run in; nil: none
}

// Venv is a virtual environment of Python that the agent has installed.
type Venv struct {
	Folder    string   `json:"folder"`         // name under ~/.plx/envs
	Base      string   `json:"base,omitempty"` // name there of its interpreter's folder; "": the host has the interpreter
	Manifests []string `json:"manifests"`      // content hashes of what was sent of them
	// Request is the venv.Request of the installation, for hosts that join the job. Nil:
	// it is not known to the version that launched the job.
	Request json.RawMessage `json:"request,omitempty"`
}

// TaskSpec is one task of the host.
type TaskSpec struct {
	Task      cluster.Task `json:"task"`
	Devices   string       `json:"devices"`           // ids of the GPUs that it sees, with commas between them; "": none
	Visible   []string     `json:"visible,omitempty"` // variables that show it these alone; nil: CUDA_VISIBLE_DEVICES does
	LocalRank int          `json:"localRank"`         // rank of a worker among those of its host, from 0; 0 for a server
	Claims    []Claim      `json:"claims,omitempty"`  // devices that the job books for the task
}

// Variables returns the variables, NAME=VALUE, that show the task its GPUs.
func (t TaskSpec) Variables() []string {
	if t.Visible == nil {
		return []string{"CUDA_VISIBLE_DEVICES=" + t.Devices}
	}
	return t.Visible
}

// Claim is a device that a job books on a host.
type Claim struct {
	Device string `json:"device"`           // UUID, or the PCI address of a GPU whose UUID is not known
	Name   string `json:"name,omitempty"`   // as the user knows it, such as "gpu 3"; "": no other than Device
	Shared bool   `json:"shared,omitempty"` // other jobs may book the device too, if they say the same
	// Whole is the GPU of a MIG device, written as Device. Nobody can book it as a whole
	// while its device is booked. "": Device is no MIG device.
	Whole string `json:"whole,omitempty"`
}

// Claims returns what is booked for tasks.
func Claims(tasks []TaskSpec) (all []Claim) {
	for _, t := range tasks {
		all = append(all, t.Claims...)
	}
	return all
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
	Name       string `json:"name,omitempty"`  // the user's name for the job
	Host       string `json:"host"`            // as the resource file names the host
	HostIndex  int    `json:"hostIndex"`       // index among the job's hosts
	Folder     string `json:"folder"`          // name of the host's folder under ~/.plx/jobs/<job>/
	Binary     string `json:"binary"`          // the agent's own executable, ~/.plx/blobs/<sha256>
	Phase      Phase  `json:"phase"`           // of this host's part of the job
	Generation int    `json:"generation"`      // number of the generation that was prepared last; 0 before the first too
	Least      int    `json:"least,omitempty"` // lowest generation that may still be prepared; those before it are over
	Addr       string `json:"addr"`            // TCP address on the data network; "": the agent does not listen there
	Processes
	Products

	Lease      time.Duration       `json:"lease,omitempty"`      // how long tasks may run without a Renew; 0: for ever
	Detached   bool                `json:"detached,omitempty"`   // an agent drives the job, not the launcher
	Tasks      map[string]*TaskNow `json:"tasks,omitempty"`      // of the generation prepared last, by Task.String
	JobPhase   Phase               `json:"jobPhase,omitempty"`   // phase of the job, if this agent drives it; "": it does not
	Verdict    *Verdict            `json:"verdict,omitempty"`    // how this host's part ended; nil: Phase is not Over
	Unkillable []int               `json:"unkillable,omitempty"` // pids of processes that outlived SIGKILL; nil: none
	Started    time.Time           `json:"started"`              // when the agent was started, by the host's clock

	// Laid is the present layout, if this agent drives a job that is no longer in
	// its first generation.
	Laid *Layout `json:"laid,omitempty"`
}

// Products say what a job leaves for its user.
type Products struct {
	Checkpoints string   `json:"checkpoints,omitempty"` // as in Spec
	Outputs     []Output `json:"outputs,omitempty"`     // as in Spec
	Workdir     string   `json:"workdir,omitempty"`     // as in Spec: what it has sent is no output
}

// Processes are those of an agent. Pids and start times, in clock ticks, tell them
// from later processes.
type Processes struct {
	Socket          string `json:"socket,omitempty"` // name of the agent's local socket
	Watchdog        int    `json:"watchdog"`         // pid; 0: none was started
	WatchdogStart   uint64 `json:"watchdogStart,omitempty"`
	Supervisor      int    `json:"supervisor"` // pid; 0: none was started
	SupervisorStart uint64 `json:"supervisorStart,omitempty"`

	// Machine tells the host from others that share its home folder, and from itself
	// before it was started again.
	Machine string `json:"machine,omitempty"`
	// Alive is when the agent last wrote its state, which it does every 30 s at least,
	// by the host's clock.
	Alive time.Time `json:"alive,omitzero"`
}

// TaskNow is one task's state. The task runs if it has a PID and no Exit.
type TaskNow struct {
	PID           int   `json:"pid,omitempty"`           // 0: the process was not started
	Native        bool  `json:"native,omitempty"`        // the task has sent hello, so it uses plx's trainer
	Step          int64 `json:"step,omitempty"`          // highest step that the task has reported; 0: none
	ToleratesLoss bool  `json:"toleratesLoss,omitempty"` // the task has said that the job tolerates lost workers; counts only for the chief
	// Word is the task's last message with a step, except messages about checkpoints.
	// Nil: none came.
	Word *cluster.ControlMessage `json:"word,omitempty"`
	// Failed is the task's report of its own failure, which may come long before its
	// exit; nil: none came.
	Failed *cluster.ControlMessage `json:"failed,omitempty"`
	Exit   *Exit                   `json:"exit,omitempty"` // how the task ended; nil: it has not
}

// Plan is what a driver needs to run a job.
type Plan struct {
	Job          string        `json:"job"`
	Hosts        []HostPlan    `json:"hosts"`        // in the order of their indices
	Grace        time.Duration `json:"grace"`        // from telling tasks to end to killing them; 0: kill at once
	Settle       time.Duration `json:"settle"`       // how long failures are collected; 0: the first is blamed at once
	StartTimeout time.Duration `json:"startTimeout"` // bounds the start of all tasks of a generation; 0: no limit
	MaxTime      time.Duration `json:"maxTime"`      // bounds the job; 0: no limit
	Lease        time.Duration `json:"lease"`        // how long a host may stay silent before it is lost
	Restarts     Restarts      `json:"restarts"`
	Hang         HangPlan      `json:"hang,omitzero"`
	Foreign      bool          `json:"foreign,omitempty"` // the program does not link plx's trainer: hosts that cannot reach each other are a warning
}

// HostPlan is one host of a plan.
type HostPlan struct {
	Host   string     `json:"host"`
	Tasks  []TaskSpec `json:"tasks"`            // in a Plan those of generation 0, in a Layout those of its generation
	Drives bool       `json:"drives,omitempty"` // the driver runs in this host's agent: the job ends when the host is lost

	Folder string `json:"folder,omitempty"` // as in Spec
	Left   bool   `json:"left,omitempty"`   // the host does not belong to the job, or no longer does
	Line   string `json:"line,omitempty"`   // the host's line of a resource file
	Binary string `json:"binary,omitempty"` // path of the agent's program on the host, relative to the home
}

// Layout says where the tasks of a generation run.
type Layout struct {
	Generation int        `json:"generation"`
	Hosts      []HostPlan `json:"hosts"` // all hosts that the job has had, in the order of their indices
}

// Restarts says when a job that fails is restarted on the hosts that are left.
type Restarts struct {
	Max        int           `json:"max"`        // most restarts of the job; 0: none
	PerHour    int           `json:"perHour"`    // most restarts within an hour; 0: as many as Max allows
	MinWorkers int           `json:"minWorkers"` // fewest workers of a generation; 0: all workers of the job's hosts
	WaitHost   time.Duration `json:"waitHost"`   // how long to wait for lost hosts if workers are too few; 0: not at all
	Backoff    time.Duration `json:"backoff"`    // time before the first restart; doubled for each next one, up to a limit
	Revive     bool          `json:"revive"`     // the driver can start a new agent on a host that has lost its agent
}

// Verdict is how a job ended.
type Verdict struct {
	Code       int      `json:"code"`                 // plx's exit status; 0: the job is done
	Reason     string   `json:"reason"`               // one line, such as "done", "worker:3 on gpu01 exited with status 2"
	First      *Exit    `json:"first,omitempty"`      // exit of the blamed task; nil: none is known
	Culprit    string   `json:"culprit,omitempty"`    // task that is blamed, such as "worker:3"; "": a host, or plx itself
	Host       string   `json:"host,omitempty"`       // name of the host that is blamed, or runs the blamed task; "": none
	Victims    []string `json:"victims,omitempty"`    // tasks that failed because a peer did, as "worker:3 on gpu01"
	Notices    []string `json:"notices,omitempty"`    // lines for the user that the driver collected during the job
	Generation int      `json:"generation,omitempty"` // number of the last generation that began
	Stepped    bool     `json:"stepped,omitempty"`    // a task has made a step, in any generation

	MoreVictims int `json:"moreVictims,omitempty"` // number of victims that were left out of Victims

	// Ends has how the tasks of the last generation ended, the culprit first; nil: the job
	// did not fail. MoreEnds is the number of tasks that were left out.
	Ends     []TaskEnd `json:"ends,omitempty"`
	MoreEnds int       `json:"moreEnds,omitempty"`

	Ended time.Time `json:"ended,omitzero"` // when the driver concluded, by its clock; zero: not known

	// Suspended is for how long plx did not run, which is why hosts have ended their tasks:
	// it was stopped, or its machine slept. 0: that is not the cause, or the job was detached.
	Suspended time.Duration `json:"suspended,omitempty"`

	Hang  *Hang  `json:"hang,omitempty"`  // the job hung, and ended because of that; nil: it did not
	Saved *Saved `json:"saved,omitempty"` // result of the checkpoint that a stop asked for; nil: none was asked for
}

// Part is the part that a task has in the failure of a job.
type Part string

// The parts.
const (
	Culprit  Part = "culprit"   // it is blamed
	Victim   Part = "victim"    // it failed because a peer did
	Failed   Part = "failed"    // it failed too, and blames nobody
	TornDown Part = "torn down" // plx ended it, because the job failed
	Done     Part = "done"      // it had ended well before
	Unknown  Part = "unknown"   // its end was not reported: its host is lost, or did not answer
)

// TaskEnd is how a task of a failed job ended.
type TaskEnd struct {
	Task   string `json:"task"`
	Host   string `json:"host"`
	Part   Part   `json:"part"`
	Code   int    `json:"code"`             // exit status, 128 + Signal after a signal; 0 too if Part is Unknown
	Signal int    `json:"signal,omitempty"` // signal that ended the task; 0: none
	Cause  string `json:"cause,omitempty"`  // as in Exit, or what shows that memory ran out, and what is wrong with /dev/shm
}

// StoppedBy begins the Reason of a job that somebody stopped. How follows: "Ctrl-C", "plx
// stop", "SIGTERM".
const StoppedBy = "stopped by "

// CtrlC is how a user stops a job on the terminal.
const CtrlC = "Ctrl-C"

// Interrupted reports whether Ctrl-C stopped the job.
func (v Verdict) Interrupted() bool { return v.Reason == StoppedBy+CtrlC }

// Stopped reports whether somebody stopped the job.
func (v Verdict) Stopped() bool { return strings.HasPrefix(v.Reason, StoppedBy) }

// Adding returns the verdict with text added to its reason.
func (v Verdict) Adding(text string) Verdict {
	v.Reason += text
	return v
}

// Saved is the result of a save: a complete checkpoint after Step, or none, with a
// Cause.
type Saved struct {
	Step  int64  `json:"step"`            // step after which the checkpoint was taken; valid without a Cause
	Cause string `json:"cause,omitempty"` // why there is no checkpoint; "": there is one
}

// Raw is a string of any bytes. JSON strings hold text only and would change
// the rest, so it travels in base64.
type Raw string

// Raws returns texts as Raw.
func Raws(texts []string) (rs []Raw) {
	for _, t := range texts {
		rs = append(rs, Raw(t))
	}
	return rs
}

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
