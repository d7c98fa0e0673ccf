package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/entrypoint"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/provision"
)

// Config is one launch. Validate fills the defaults.
type Config struct {
	hosts.Reach
	Terminal console.Terminal
	Stdin    *os.File // standard input, which no task reads: a note says so if something waits there; nil: nothing does

	// Program is a local executable ("./train"), a Go package folder, or the
	// bare name of a command on the hosts' PATH.
	Program string
	Args    []string // arguments of the program
	Name    string   // the user's name for the job; empty: it has none
	// Submission is the id of the submission.Submission whose script launches the job. Empty: none.
	Submission string

	Env         []string // NAME=VALUE, or NAME for the value of this machine
	EnvFiles    []string
	Copy        []string      // files and folders for the tasks' working folders
	Workdir     string        // folder of this machine whose content the tasks run in; empty: none
	KeepLinks   bool          // send links that lead out of Workdir as they are
	CheckImport []string      // modules of Python to import on every host before the tasks start
	Venv        string        // folder of this machine with a Python virtual environment for the tasks; empty: none
	Chdir       string        // folder on the hosts to run in; empty: the task's own
	Setup       string        // shell line to run before the program; empty: none
	SetupTime   time.Duration // bounds Setup on a host, if it runs once there; 0: 10m
	Path        string        // folders to put before the hosts' PATH, separated by colons; empty: none
	Detach      bool          // the agent on the chief's host drives the job; plx returns after the start
	DryRun      bool          // print what a launch would do, and start nothing
	LocalAsked  bool          // the user named the size of the embedded cluster
	Verbose     bool          // print the plan, and what the tasks tell of theirs

	Output []string // patterns of files that the job makes, relative to where the tasks run

	outputs []protocol.Output // Output, and what the program's trainer writes; written by validate
	environ []string          // Env and EnvFiles together, as NAME=VALUE; written by validate
	ownVenv bool              // Venv is that of the program, and the user did not name it; written by validate

	placement.Options
	// AutoServers gives servers to programs that link plx's trainer only: read writes
	// NoServers.
	AutoServers bool
	// AutoVisible shows a program for torchrun the devices of all workers of its host:
	// read writes VisibleHost.
	AutoVisible bool
	NoBind      bool // do not bind workers to their share of the cores
	PortLow     int  // first port that tasks may serve on; 0: any free port
	PortHigh    int  // last port that tasks may serve on; 0 with PortLow 0

	WaitGPUs     time.Duration     // how long to wait for GPUs that others use; 0: they are refused
	StartTimeout time.Duration     // bounds the start of all tasks of a generation; 0: 5m
	MaxTime      time.Duration     // bounds the job; 0: no limit
	Hang         protocol.HangPlan // when the job counts as hung, and what follows; a Timeout of 0: never
	Freeze       time.Duration     // silence after which a task that uses the trainer counts as failed; 0: never
	Restarts     Restarts          // zero: the first failure ends the job; plan writes Revive
	Lease        time.Duration     // how long a host runs tasks without hearing the driver; 0: jobs.DefaultLease
	TLS          bool              // agents and tasks of plx's trainer encrypt what they send to other hosts
	Grace        time.Duration     // between telling a task to end and killing it; 0: it is killed at once
	LogDir       string            // folder of this machine for a file per stream of each task; empty: none
	LogLimit     int64             // size of the output of a task that its host keeps, in bytes; 0: all of it
	Metrics      []string          // patterns of values in the output of tasks, as metrics.ParsePatterns reads them; empty: plx's own alone
	LogLevel     string            // PLX_LOG_LEVEL of the tasks; empty: info
	Grep         *regexp.Regexp    // lines of output that do not match are not printed; nil: all are
	Stamps       bool              // lines of output begin with their time
	NoPrefix     bool              // lines of output begin without task and host
	Notify       string            // shell line that this machine runs when the job hangs or has ended; empty: none
	JSON         bool              // stdout has events and the lines of tasks, as JSON
	CommandLine  []string          // of plx, for reports; what its names show to be secrets is not kept
	Version      string            // of plx, for reports
	KeepDiff     bool              // keep with the job how the program's folder differs from its git commit
	Show         []string          // patterns for the tasks whose output is printed, such as "worker:*"; empty: all

	// Resume names a job with whose checkpoints this one begins. Empty: none.
	Resume string
	// Fetch is the folder of this machine for checkpoints, outputs and logs, after the job has
	// ended. Empty: they stay on the hosts.
	Fetch string
	// SaveTime bounds the checkpoint that a job makes before SIGTERM or a preempted
	// host ends it. 0: it makes none.
	SaveTime time.Duration
}

// DefaultHang is how long nothing moves in a job until it counts as hung.
const DefaultHang = 10 * time.Minute

// settle is how long the driver collects failures before it blames one of them.
const settle = time.Second

// DefaultSaveTime is how long a job may take to save before it ends. Preempted hosts
// seldom leave more time.
const DefaultSaveTime = time.Minute

// leastLease is the shortest lease. A busy host would miss a shorter one.
const leastLease = 5 * time.Second

// mostPerHost is far more workers than a host can run. A plan with billions of them would
// take all memory.
const mostPerHost = 4096

// leastFreeze is the time of two heartbeats of a task. With less, one late heartbeat
// would count as a failure.
const leastFreeze = 4 * time.Second

// Check refuses what Launch would refuse before it connects to a host, for a launch that
// another plx does later. It returns the variables of the tasks, as NAME=VALUE.
func (c Config) Check() (environ []string, err error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	for flag, paths := range map[string][]string{"workdir": {c.Workdir}, "venv": {c.Venv}, "copy": c.Copy} {
		for _, path := range paths {
			if _, err := os.Stat(path); err != nil && path != "" {
				return nil, exit.Mistake(fmt.Errorf("--%s: %w", flag, err), "--%s names what is on this machine", flag)
			}
		}
	}
	return c.environ, nil
}

// source is the part of the configuration that decides what the tasks run.
func (c *Config) source() entrypoint.Source {
	return entrypoint.Source{Program: c.Program, Args: c.Args, Workdir: c.Workdir, Venv: c.Venv, Copy: c.Copy, Chdir: c.Chdir, Setup: c.Setup, Path: c.Path}
}

func (c *Config) validate() error {
	if c.Program == "" {
		return exit.Mistake(errors.New("no program was named"), "plx launch --hosts resources.txt ./train")
	}
	if err := c.source().Check(); err != nil {
		return err
	}
	if c.Venv == "" {
		c.Venv = c.source().OwnVenv()
		c.ownVenv = c.Venv != ""
	}
	c.LogLevel = cmp.Or(c.LogLevel, "info")
	c.StartTimeout = cmp.Or(c.StartTimeout, 5*time.Minute)
	c.Lease = cmp.Or(c.Lease, jobs.DefaultLease)
	if c.Lease < leastLease {
		return exit.Mistake(fmt.Errorf("--lease %s is too short, at least %s is needed", c.Lease, leastLease), "--lease %s", leastLease)
	}
	if err := c.checkSigns(); err != nil {
		return err
	}
	if c.Freeze > 0 && c.Freeze < leastFreeze {
		return exit.Mistake(fmt.Errorf("--freeze-timeout %s is too short, at least %s is needed: tasks send a heartbeat every 2s", c.Freeze, leastFreeze), "--freeze-timeout %s, or 0 for never", leastFreeze)
	}
	if err := c.checkHang(); err != nil {
		return err
	}
	if c.Fetch != "" && c.Detach {
		return exit.Mistake(errors.New("--fetch needs an attached job, and --detach was given"), "plx fetch JOB DIR, once it has ended")
	}
	if c.JSON && (c.Detach || c.DryRun) {
		return exit.Mistake(errors.New("--json tells of a job as it runs, and --detach or --dry-run was given"), "plx logs -f --json, plx status --json")
	}
	if c.Notify != "" && c.Detach {
		return exit.Mistake(errors.New("--notify needs an attached job, and --detach was given"), "plx attach --notify COMMAND, on a machine that stays on")
	}
	if c.Workdir != "" && c.Chdir != "" {
		return exit.Mistake(errors.New("--workdir and --chdir exclude each other: tasks run in one folder"), "with --workdir they run in its copy on the hosts")
	}
	if err := c.checkSetup(); err != nil {
		return err
	}
	if slices.Contains(c.Copy, "") {
		return exit.Mistake(errors.New("--copy: the name is empty"), "an unset shell variable? leave --copy out, or name a file")
	}
	if c.Detach && (c.LogDir != "" || c.Grep != nil || len(c.Show) > 0) {
		return exit.Mistake(errors.New("--log-dir, --grep, --task and --rank need an attached job, and --detach was given"), "plx logs -f --grep RE")
	}
	if c.ShareGPUs && c.WaitGPUs > 0 {
		return exit.Mistake(errors.New("--share-gpus and --wait-gpus contradict each other: one uses GPUs beside others, the other waits until nobody else does"), "leave one of them out")
	}
	if len(c.Hosts) > 0 { // those of an embedded cluster have no names yet
		if err := placement.CheckServers(c.Hosts, c.Servers); err != nil {
			return err
		}
	}
	var err error
	if c.CheckImport, err = provision.ModuleNames(c.CheckImport); err != nil {
		return err
	}
	if c.outputs, err = outputs(c.Output, c.Args); err != nil {
		return err
	}
	if c.environ, err = envsync.Environment(c.Env, c.EnvFiles, os.LookupEnv); err != nil {
		return exit.Mistake(err, envsync.EnvironmentHint)
	}
	if err := c.CheckVariables(); err != nil {
		return err
	}
	if c.Name != "" && !jobName().MatchString(c.Name) {
		return exit.Mistake(fmt.Errorf("--name %q: a name is up to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit", c.Name), "--name %s", likeName(c.Name))
	}
	if c.Resume != "" && !jobName().MatchString(c.Resume) {
		return exit.Mistake(fmt.Errorf("--resume %q: this is neither a job nor a name", c.Resume), "plx jobs lists both")
	}
	return nil
}

// leastHang is the shortest hang timeout: agents measure once a second, and a busy host may
// be late.
const leastHang = 5 * time.Second

// checkHang checks --hang-timeout and --on-hang.
func (c *Config) checkHang() error {
	c.Hang.Action = cmp.Or(c.Hang.Action, protocol.HangReport)
	switch {
	case c.Hang.Timeout > 0 && c.Hang.Timeout < leastHang:
		return exit.Mistake(fmt.Errorf("--hang-timeout %s is too short, at least %s is needed: agents measure tasks once a second", c.Hang.Timeout, leastHang), "--hang-timeout %s, or 0 for never", leastHang)
	case !slices.Contains([]string{protocol.HangReport, protocol.HangStop, protocol.HangRestart}, c.Hang.Action):
		return exit.Mistake(fmt.Errorf("--on-hang %s: want report, stop or restart", c.Hang.Action), "--on-hang stop")
	case c.Hang.Action == protocol.HangRestart && c.Restarts.Max == 0:
		return exit.Mistake(errors.New("--on-hang restart needs --max-restarts: a restart after a hang counts as one"), "--on-hang restart --max-restarts 3")
	}
	return nil
}

// variable finds the variables that a shell line uses.
var variable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?:^|[^\\])\$\{?[#!]?([A-Za-z_][A-Za-z0-9_]*)`) })

// checkSetup refuses a line that runs once for all tasks of a host and uses what differs
// between them.
func (c *Config) checkSetup() error {
	c.SetupTime = cmp.Or(c.SetupTime, 10*time.Minute)
	if c.Workdir == "" {
		return nil
	}
	for _, m := range variable().FindAllStringSubmatch(c.Setup, -1) {
		if m[1] != "PWD" && envsync.CheckVariable(m[1]+"=") != nil {
			return exit.Mistake(fmt.Errorf("--setup uses $%s, which differs between tasks: with --workdir the line runs once on each host, before its tasks", m[1]),
				"make it a part of PROGRAM: plx launch ... sh -c '...; exec python3 train.py'")
		}
	}
	return nil
}

// checkSigns refuses negative numbers and times, and more workers than a host can run.
func (c *Config) checkSigns() error {
	for _, n := range []struct {
		flag  string
		value int64
	}{
		{"-n", int64(c.Workers)}, {"--workers-per-host", int64(c.PerHost)}, {"--grace", int64(c.Grace)},
		{"--max-time", int64(c.MaxTime)}, {"--wait-gpus", int64(c.WaitGPUs)}, {"--start-timeout", int64(c.StartTimeout)}, {"--freeze-timeout", int64(c.Freeze)}, {"--hang-timeout", int64(c.Hang.Timeout)},
		{"--checkpoint-timeout", int64(c.SaveTime)}, {"--max-restarts", int64(c.Restarts.Max)},
		{"--setup-timeout", int64(c.SetupTime)}, {"--restarts-per-hour", int64(c.Restarts.PerHour)}, {"--min-workers", int64(c.Restarts.MinWorkers)},
		{"--wait-host", int64(c.Restarts.WaitHost)}, {"--restart-backoff", int64(c.Restarts.Backoff)},
	} {
		if n.value < 0 {
			return exit.Mistake(fmt.Errorf("%s is negative", n.flag), "leave %s out, or give it 0 or more", n.flag)
		}
	}
	if c.PerHost > mostPerHost {
		return exit.Mistake(fmt.Errorf("--workers-per-host %d: a host runs %d workers at most", c.PerHost, mostPerHost), "--workers-per-host N, with one for each GPU or core of a host")
	}
	return nil
}

var (
	jobName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`) })
	noName  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^A-Za-z0-9._-]+`) }) // what a name has not
)

// likeName returns a valid name like the one that the user gave.
func likeName(name string) string {
	name = strings.TrimLeft(noName().ReplaceAllString(name, "-"), "._-")
	return cmp.Or(strings.TrimRight(name[:min(len(name), 64)], "._-"), "my-job")
}

// Restarts tells how a job continues after a failure.
type Restarts = protocol.Restarts

// HangPlan tells when a job hangs, and what follows.
type HangPlan = protocol.HangPlan
