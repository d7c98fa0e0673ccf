package protocol

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// Spec is everything that an agent needs to know about its job. The launcher
// sends it over a connection. It is never written to disk, because it contains
// the user's environment variables and the job's secret.
type Spec struct {
	Job       string `json:"job"`
	Name      string `json:"name"`      // name that the user gave the job; may be empty
	Host      string `json:"host"`      // name of the host in the resource file (the user's list of hosts)
	HostIndex int    `json:"hostIndex"` // index of the host among those of the job, from 0
	Folder    string `json:"folder"`    // name of this host's folder under ~/.plx/jobs/<job>/

	// Checkpoints is the name of the folder under ~/.plx/ckpt for the job's
	// checkpoints. A later job with the same name resumes from them.
	Checkpoints string `json:"checkpoints"`

	Command  Command  `json:"command"`
	Env      []Raw    `json:"env"`                // user's environment variables, NAME=VALUE, any bytes except NUL; of several with the same name, the last one counts
	OwnEnv   int      `json:"ownEnv,omitempty"`   // number of elements at the end of Env that come from the host's line in the resource file
	Copied   string   `json:"copied,omitempty"`   // hash of the manifest of files to copy into each task's folder; empty if there are none
	Workdir  string   `json:"workdir,omitempty"`  // hash of the manifest of the working directory that the host's tasks share; empty if each task has its own
	LogLevel string   `json:"logLevel"`           // value of PLX_LOG_LEVEL for the tasks
	LogLimit int64    `json:"logLimit,omitempty"` // largest size in bytes of a task's stored output; 0 means no limit
	Metrics  []string `json:"metrics,omitempty"`  // NAME=REGEXP patterns that extract metrics from the tasks' output; see metrics.ParsePatterns
	Secret   []byte   `json:"secret"`             // shared secret with which the job's agents and tasks authenticate each other
	TLS      bool     `json:"tls,omitempty"`      // true if agents and plx's trainer encrypt their connections to other hosts

	Outputs []Output `json:"outputs,omitempty"` // patterns of the files that the job produces

	// Tasks are the host's tasks in generation 0, the first run of all tasks,
	// whose folders plx fills before the agent starts. Which tasks the agent
	// starts, also in generation 0, is in each Prepare message. WorldSize is
	// the number of workers of the job in generation 0.
	Tasks     []TaskSpec `json:"tasks"`
	WorldSize int        `json:"worldSize"`
	Bind      bool       `json:"bind"` // true if each worker is pinned to its share of the host's CPU cores
	// Claims are the devices of this host that the job has locked. The agent
	// releases them when it exits.
	Claims []Claim `json:"claims,omitempty"`
	// Ticket is the launch's position in the queues for GPUs. Waiting launches
	// with earlier tickets get the GPUs first.
	Ticket string `json:"ticket,omitempty"`

	DataAddr string `json:"dataAddr"` // IP address, without a port, at which other hosts reach this host
	// Interface is the network interface that the user selected for DataAddr,
	// or empty if the user selected none. JobInterface is the interface for
	// hosts whose line in the resource file names none.
	Interface    string `json:"interface,omitempty"`
	JobInterface string `json:"jobInterface,omitempty"`

	PortLow  int           `json:"portLow"`  // first port for sockets on this host; any port may be used if PortLow and PortHigh are both 0
	PortHigh int           `json:"portHigh"` // last port for sockets on this host
	Lease    time.Duration `json:"lease"`    // the agent stops its tasks when no Renew message has arrived for this long; 0 means never
	Grace    time.Duration `json:"grace"`    // time between asking tasks to stop and killing them; 0 kills at once
	Freeze   time.Duration `json:"freeze"`   // the agent kills a task of plx's trainer that sends no heartbeat for this long; 0 means never
	Detached bool          `json:"detached"` // true if an agent drives (controls) the job, false if plx launch does
	Logs     bool          `json:"logs"`     // true if the agent sends the first EarlyLogs bytes of the logs in Logged messages
	// Hang is the time without progress after which the job counts as hung
	// (see HangPlan.Timeout). The agent measures the activity of its tasks
	// often enough to detect such a hang.
	Hang time.Duration `json:"hang,omitempty"`

	// Placing and StartTimeout are options of plx launch. They are stored for
	// plx scale, which applies them to hosts that join the job later.
	Placing      Placing       `json:"placing"`
	StartTimeout time.Duration `json:"startTimeout"` // time limit for starting all tasks of a generation

	// Imports are Python modules that every host must be able to import. It is
	// nil if there are none.
	Imports []string `json:"imports,omitempty"`
	// SetupTime is the time limit for the --setup script. It applies if the
	// script runs once per host instead of in each task. 0 means no limit.
	SetupTime time.Duration `json:"setupTime,omitempty"`

	// SaveTime is the time limit for the checkpoint that the job takes when
	// one of its hosts is shut down. If it is 0, the job ends without a
	// checkpoint.
	SaveTime time.Duration `json:"saveTime"`
}

// EnvOf returns the user's environment variables for another host of the job.
// own are the variables that this other host's line in the resource file sets.
func (s Spec) EnvOf(own []string) []Raw {
	shared := s.Env[:max(0, len(s.Env)-s.OwnEnv)]
	return append(slices.Clone(shared), Raws(own)...)
}

// Placing holds the options of plx launch that determine which tasks run on
// which host. The resource file (list of hosts) contains all other settings
// for this.
type Placing struct {
	Workers     int      `json:"workers,omitempty"`     // number of workers of the job; 0 means one per device
	PerHost     int      `json:"perHost,omitempty"`     // number of workers on each host; 0 means one per device
	Servers     []string `json:"servers,omitempty"`     // names of hosts that run a parameter server; nil means every host with a worker
	NoServers   bool     `json:"noServers,omitempty"`   // true if the job has no parameter servers
	VisibleHost bool     `json:"visibleHost,omitempty"` // true if each worker sees the GPUs of all workers of its host
	ShareGPUs   bool     `json:"shareGPUs,omitempty"`   // true if other jobs may use the same GPUs
}

// Command is the program that every task runs. Exactly one of Blob and Name is
// set.
type Command struct {
	Blob  string `json:"blob,omitempty"`  // SHA-256 of an executable that plx has copied to the host
	Base  Raw    `json:"base,omitempty"`  // original file name of that executable, used as argv[0]
	Name  Raw    `json:"name,omitempty"`  // name of a command that is found through the host's PATH
	Args  []Raw  `json:"args,omitempty"`  // arguments; any bytes except NUL
	Setup Raw    `json:"setup,omitempty"` // shell script to run before the program; empty if there is none
	// SetupDone means that the script Setup has already run once for all tasks
	// of the host. The environment that it produced is stored in the job's
	// folder. If SetupDone is false, every task runs Setup.
	SetupDone bool  `json:"setupDone,omitempty"`
	Chdir     Raw   `json:"chdir,omitempty"` // working directory, relative to the home directory or absolute; empty means the task's own folder
	Path      Raw   `json:"path,omitempty"`  // list of folders that precede those of the host's PATH; may be empty
	Venv      *Venv `json:"venv,omitempty"`  // Python virtual environment in which the program runs; nil if there is none
}

// Venv is a Python virtual environment that the agent has installed on the
// host.
type Venv struct {
	Folder    string   `json:"folder"`         // name of the environment's folder under ~/.plx/envs
	Base      string   `json:"base,omitempty"` // name under ~/.plx/envs of the interpreter's folder; empty if the host's own interpreter is used
	Manifests []string `json:"manifests"`      // content hashes of the manifests (file lists) of the folders that plx sent for the environment
	// Request is the venv.Request with which the environment was installed.
	// plx scale installs it in the same way on hosts that join the job.
	// Request is nil if an older plx version, which does not record it,
	// launched the job.
	Request json.RawMessage `json:"request,omitempty"`
}

// TaskSpec describes one task of a host: a worker or a parameter server.
type TaskSpec struct {
	Task      cluster.Task `json:"task"`
	Devices   string       `json:"devices"`           // comma-separated IDs of the GPUs that the task sees; empty if it sees none
	Visible   []string     `json:"visible,omitempty"` // NAME=VALUE variables that make only the GPUs in Devices visible; nil means CUDA_VISIBLE_DEVICES=Devices
	LocalRank int          `json:"localRank"`         // rank of a worker among the workers of its host, from 0; always 0 for a server
	Claims    []Claim      `json:"claims,omitempty"`  // devices that the job locks for this task
}

// Variables returns the NAME=VALUE environment variables that make only the
// task's GPUs visible to it.
func (t TaskSpec) Variables() []string {
	if t.Visible == nil {
		return []string{"CUDA_VISIBLE_DEVICES=" + t.Devices}
	}
	return t.Visible
}

// Claim is a lock on a device (GPU or MIG device) of a host that a job holds
// or wants to take.
type Claim struct {
	Device string `json:"device"`           // UUID of the device, or its PCI address if the UUID is unknown
	Name   string `json:"name,omitempty"`   // name for the user, such as "gpu 3"; empty means Device
	Shared bool   `json:"shared,omitempty"` // true if other jobs may lock the device too; their claims must also be shared
	// Whole identifies the GPU that contains a MIG device (a part of a GPU),
	// in the same form as Device. While the MIG device is locked, no job can
	// lock the whole GPU. Whole is empty if Device is not a MIG device.
	Whole string `json:"whole,omitempty"`
}

// Claims returns the claims (locks on GPUs) of all given tasks.
func Claims(tasks []TaskSpec) (all []Claim) {
	for _, t := range tasks {
		all = append(all, t.Claims...)
	}
	return all
}

// Workers returns the number of workers among the given tasks.
func Workers(tasks []TaskSpec) int {
	n := 0
	for _, t := range tasks {
		if t.Task.Role == cluster.Worker {
			n++
		}
	}
	return n
}

// Phase is the phase of a job, or of one host's part of a job.
type Phase string

// Values of Phase, in the order in which a job goes through them.
const (
	Idle     Phase = "idle"     // the agent runs, but has not opened sockets for tasks
	Ready    Phase = "ready"    // the sockets of the tasks are open
	Running  Phase = "running"  // the tasks have been started
	Stopping Phase = "stopping" // the agent is stopping its tasks, because of an End message or because the lease expired
	Over     Phase = "over"     // the job has ended and its verdict is recorded
)

// State is what an agent knows about its part of the job. The agent also
// stores it as state.json (mode 0600) in the host's folder of the job, where
// it remains after the agent exits.
type State struct {
	Job        string `json:"job"`
	Name       string `json:"name,omitempty"`  // name that the user gave the job; may be empty
	Host       string `json:"host"`            // name of the host in the resource file (the user's list of hosts)
	HostIndex  int    `json:"hostIndex"`       // index of the host among those of the job, from 0
	Folder     string `json:"folder"`          // name of this host's folder under ~/.plx/jobs/<job>/
	Binary     string `json:"binary"`          // path of the agent's executable, ~/.plx/blobs/<sha256>
	Phase      Phase  `json:"phase"`           // phase of this host's part of the job
	Generation int    `json:"generation"`      // number of the last generation (run of all tasks) that was prepared; 0 also before the first one
	Least      int    `json:"least,omitempty"` // lowest generation that the agent may still prepare; all lower generations are over
	Addr       string `json:"addr"`            // TCP address of the agent on the data network; empty if the agent does not listen there
	Processes
	Products

	Lease      time.Duration         `json:"lease,omitempty"`      // the agent stops its tasks when no Renew message has arrived for this long; 0 means never
	Detached   bool                  `json:"detached,omitempty"`   // true if an agent drives (controls) the job, false if plx launch does
	Tasks      map[string]*TaskState `json:"tasks,omitempty"`      // tasks of the last prepared generation, by their names (Task.String)
	JobPhase   Phase                 `json:"jobPhase,omitempty"`   // phase of the whole job if this agent drives (controls) the job; otherwise empty
	Verdict    *Verdict              `json:"verdict,omitempty"`    // how this host's part of the job ended; nil until Phase is Over
	Unkillable []int                 `json:"unkillable,omitempty"` // PIDs of processes that survived SIGKILL, for example in an uninterruptible wait
	Started    time.Time             `json:"started"`              // start time of the agent, by the host's clock

	// Layout says which tasks run on which hosts in the current generation. It
	// is nil in the first generation. It is also nil if this agent does not
	// drive (control) the job.
	Layout *Layout `json:"laid,omitempty"`
}

// Products describes the files that a job leaves for its user.
type Products struct {
	Checkpoints string   `json:"checkpoints,omitempty"` // name of the checkpoint folder, as in Spec
	Outputs     []Output `json:"outputs,omitempty"`     // patterns of the files that the job produces, as in Spec
	Workdir     string   `json:"workdir,omitempty"`     // manifest hash of the working directory, as in Spec; files listed there are not outputs
}

// Processes identifies the processes of an agent. A process is identified by
// its PID and its start time in clock ticks. So a later process with the same
// PID does not count as the agent's.
type Processes struct {
	Socket          string `json:"socket,omitempty"` // name of the Unix socket on which the agent listens
	Watchdog        int    `json:"watchdog"`         // PID of the watchdog, the process that cleans up if the supervisor dies; 0 if it was not started
	WatchdogStart   uint64 `json:"watchdogStart,omitempty"`
	Supervisor      int    `json:"supervisor"` // PID of the supervisor, the process that runs the tasks; 0 if it was not started
	SupervisorStart uint64 `json:"supervisorStart,omitempty"`

	// Machine identifies the host and its current boot. It distinguishes the
	// host from others that share its home directory, and from the same host
	// before a reboot.
	Machine string `json:"machine,omitempty"`
	// Alive is the time, by the host's clock, at which the agent last wrote
	// its state. The agent writes it at least every 30 s.
	Alive time.Time `json:"alive,omitzero"`
}

// TaskState is the current state of one task. The task is running if PID is set
// and Exit is nil.
type TaskState struct {
	PID           int   `json:"pid,omitempty"`           // PID of the task's process; 0 if it was not started
	Native        bool  `json:"native,omitempty"`        // true once the task has connected to the agent by the control channel of plx's trainer
	Step          int64 `json:"step,omitempty"`          // highest training step that the task has reported; 0 means none
	ToleratesLoss bool  `json:"toleratesLoss,omitempty"` // true if the task has reported that the job can continue without lost workers; only the chief's report counts
	// LastProgress is the last control message of the task that has a step number,
	// except for messages about checkpoints. It is nil if there was none.
	LastProgress *cluster.ControlMessage `json:"word,omitempty"`
	// Failed is the message in which the task reported its own failure,
	// possibly long before it exited. It is nil if there was none.
	Failed *cluster.ControlMessage `json:"failed,omitempty"`
	Exit   *Exit                   `json:"exit,omitempty"` // how the task's process ended; nil while it runs
}

// Plan holds the parameters that a driver (the process that runs a job) needs.
type Plan struct {
	Job          string        `json:"job"`
	Hosts        []HostPlan    `json:"hosts"`        // hosts of the job, ordered by host index
	Grace        time.Duration `json:"grace"`        // time between asking tasks to stop and killing them; 0 kills at once
	Settle       time.Duration `json:"settle"`       // time after the first failure in which further failures are collected before one is blamed; 0 blames the first
	StartTimeout time.Duration `json:"startTimeout"` // time limit for starting all tasks of a generation; 0 means no limit
	MaxTime      time.Duration `json:"maxTime"`      // time limit for the whole job; 0 means no limit
	Lease        time.Duration `json:"lease"`        // a host counts as lost when no message from it has arrived for this long
	Restarts     Restarts      `json:"restarts"`
	Hang         HangPlan      `json:"hang,omitzero"`
	Foreign      bool          `json:"foreign,omitempty"` // true if the program does not use plx's trainer, so that hosts which cannot reach each other cause only a warning
}

// HostPlan describes one host of a job and the tasks on it.
type HostPlan struct {
	Host   string     `json:"host"`
	Tasks  []TaskSpec `json:"tasks"`            // tasks of generation 0 if this HostPlan is in a Plan; tasks of the Layout's generation if it is in a Layout
	Drives bool       `json:"drives,omitempty"` // true if the agent on this host drives (controls) the job; the job then ends if this host is lost

	Folder string `json:"folder,omitempty"` // name of the host's folder of the job, as in Spec
	Left   bool   `json:"left,omitempty"`   // true if the host has left the job, or has not become a member
	Line   string `json:"line,omitempty"`   // the host's line in the resource file
	Binary string `json:"binary,omitempty"` // path of the agent's executable on the host, relative to the home directory
}

// Layout describes on which hosts the tasks of one generation run.
type Layout struct {
	Generation int        `json:"generation"`
	Hosts      []HostPlan `json:"hosts"` // all hosts that have ever belonged to the job, ordered by host index
}

// Restarts says when a failed job is restarted on its remaining hosts.
type Restarts struct {
	Max        int           `json:"max"`        // largest number of restarts of the job; 0 disables restarts
	PerHour    int           `json:"perHour"`    // largest number of restarts within an hour; 0 means no limit besides Max
	MinWorkers int           `json:"minWorkers"` // smallest number of workers to continue with; 0 requires all workers of the job
	WaitHost   time.Duration `json:"waitHost"`   // time to wait for lost hosts to come back if too few workers are left; 0 means not to wait
	Backoff    time.Duration `json:"backoff"`    // delay before the first restart; each further restart doubles the delay, up to a limit
	Revive     bool          `json:"revive"`     // true if the driver (the process that controls the job) can start a new agent on a host whose agent was lost
}

// Verdict is the result of a job: its exit status, the reason, and the task or
// host to blame.
type Verdict struct {
	Code       int      `json:"code"`                 // exit status of plx launch; 0 means that the job succeeded
	Reason     string   `json:"reason"`               // one line for the user, such as "done" or "worker:3 on gpu01 exited with status 2"
	First      *Exit    `json:"first,omitempty"`      // exit of the task that is blamed; nil if no task is blamed or its exit is unknown
	Culprit    string   `json:"culprit,omitempty"`    // the task that is blamed, such as "worker:3"; empty if a host or plx itself is blamed
	Host       string   `json:"host,omitempty"`       // name of the host that is blamed, or of the blamed task's host; empty if neither exists
	Victims    []string `json:"victims,omitempty"`    // tasks that failed only because another task failed, such as "worker:3 on gpu01"
	Notices    []string `json:"notices,omitempty"`    // messages for the user, one line each, that the driver (the process that controls the job) recorded
	Generation int      `json:"generation,omitempty"` // number of the last generation (run of all tasks) that was begun
	Stepped    bool     `json:"stepped,omitempty"`    // true if any task has completed a training step, in any generation

	MoreVictims int `json:"moreVictims,omitempty"` // number of victims that Victims lacks because its length is limited

	// Ends lists how each task of the last generation ended, beginning with
	// the culprit. It is nil if the job did not fail. MoreEnds is the number
	// of tasks that Ends lacks because its length is limited.
	Ends     []TaskEnd `json:"ends,omitempty"`
	MoreEnds int       `json:"moreEnds,omitempty"`

	Ended time.Time `json:"ended,omitzero"` // time at which the driver (the process that controls the job) ended the job, by the driver's clock; zero if unknown

	// If plx launch was stopped or its machine slept, and the hosts ended
	// their tasks for this reason, Suspended is how long plx launch did not
	// run. Otherwise it is 0.
	Suspended time.Duration `json:"suspended,omitempty"`

	Hang  *Hang  `json:"hang,omitempty"`  // details of the hang if the job ended because it hung; otherwise nil
	Saved *Saved `json:"saved,omitempty"` // result of the checkpoint that was requested before a stop; nil if no checkpoint was requested
}

// Part says what part a task had in the failure of its job: culprit, victim
// and so on.
type Part string

// Values of Part.
const (
	Culprit  Part = "culprit"   // the task is blamed for the job's failure
	Victim   Part = "victim"    // the task failed because another task of the job failed
	Failed   Part = "failed"    // the task failed for a reason of its own, but is not blamed for the job's failure
	TornDown Part = "torn down" // plx stopped the task because the job had failed
	Done     Part = "done"      // the task had already ended successfully
	Unknown  Part = "unknown"   // the task's exit was not reported, because its host was lost or did not answer
)

// TaskEnd describes how one task of a failed job ended.
type TaskEnd struct {
	Task   string `json:"task"`
	Host   string `json:"host"`
	Part   Part   `json:"part"`
	Code   int    `json:"code"`             // exit status; 128 + Signal if a signal ended the task; meaningless if Part is Unknown
	Signal int    `json:"signal,omitempty"` // number of the signal that ended the task; 0 if none did
	Cause  string `json:"cause,omitempty"`  // why the task ended, as far as known: its own report, an out-of-memory kill, or a problem with /dev/shm
}

// StoppedBy begins Verdict.Reason if a user or a signal stopped the job. After
// it comes what stopped the job, such as "Ctrl-C", "plx stop" or "SIGTERM".
const StoppedBy = "stopped by "

// CtrlC follows StoppedBy in Verdict.Reason if the user pressed Ctrl-C in the
// terminal.
const CtrlC = "Ctrl-C"

// Interrupted reports whether the user stopped the job by Ctrl-C.
func (v Verdict) Interrupted() bool { return v.Reason == StoppedBy+CtrlC }

// Stopped reports whether a user or a signal stopped the job.
func (v Verdict) Stopped() bool { return strings.HasPrefix(v.Reason, StoppedBy) }

// Adding returns a copy of v with text appended to its Reason.
func (v Verdict) Adding(text string) Verdict {
	v.Reason += text
	return v
}

// Saved is the result of a request to take a checkpoint. If Cause is empty,
// the checkpoint is complete.
type Saved struct {
	Step  int64  `json:"step"`            // training step after which the checkpoint was taken; valid if Cause is empty
	Cause string `json:"cause,omitempty"` // why no checkpoint was taken; empty if the checkpoint is complete
}

// Raw is a string that may contain any bytes. A JSON string can hold only
// valid text, so Raw is encoded in base64.
type Raw string

// Raws converts each text to a Raw.
func Raws(texts []string) (rs []Raw) {
	for _, t := range texts {
		rs = append(rs, Raw(t))
	}
	return rs
}

// MarshalText encodes r in base64.
func (r Raw) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, []byte(r)), nil
}

// UnmarshalText decodes the base64 that MarshalText wrote.
func (r *Raw) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.AppendDecode(nil, text)
	*r = Raw(b)
	return err
}
