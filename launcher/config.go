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

// Config describes one launch. The method validate fills in the defaults.
type Config struct {
	hosts.Reach
	Terminal console.Terminal
	Stdin    *os.File // standard input of plx; if it has data, plx prints a note that the tasks do not get the data

	// Program is a local executable ("./train"), the directory of a Go
	// package, or the name of a command that is on PATH on the hosts.
	Program string
	Args    []string // command-line arguments of Program
	Name    string   // name that the user gave the job; "" if the job has no name
	// Submission is the id of the batch submission (see package submission)
	// whose script runs this launch. It is empty if the user launched the job
	// directly.
	Submission string

	Env         []string // environment of the tasks: NAME=VALUE, or NAME to copy the value from this machine
	EnvFiles    []string
	Copy        []string      // local files and directories to copy into each task's working directory
	Workdir     string        // local directory to copy to the hosts as the tasks' working directory; "" copies none
	KeepLinks   bool          // send symbolic links that point outside Workdir unchanged, instead of refusing them
	CheckImport []string      // Python modules that every host must be able to import before the tasks start
	Venv        string        // local Python virtual environment to copy to the hosts for the tasks; "" copies none
	Chdir       string        // directory on the hosts in which the tasks run; "" means a directory that plx makes for the task
	Setup       string        // shell command line to run before the program; "" runs nothing
	SetupTime   time.Duration // timeout of Setup on a host if Workdir is set, because Setup then runs once per host; 0 means 10 minutes
	Path        string        // colon-separated directories to prepend to PATH on the hosts; "" leaves PATH unchanged
	Detach      bool          // start the job, let the agent on worker:0's host control it, and return
	DryRun      bool          // print what a launch would do, without starting anything
	LocalGiven  bool          // true if the user gave the size of the embedded cluster (hosts simulated on this machine) with --local
	Verbose     bool          // print which task runs on which host, and the stderr lines that plx's trainer marks as detail

	Output []string // glob patterns of files that the job writes, relative to the tasks' working directory

	outputs []protocol.Output // patterns of Output and of the files that plx's trainer writes; set by validate
	environ []string          // variables of Env and EnvFiles together, as NAME=VALUE; set by validate
	ownVenv bool              // true if --venv is absent and Venv is the virtual environment that contains Program; set by validate

	placement.Options
	// AutoServers requests parameter servers if Program links plx's trainer.
	// For other programs, the method launch.read sets NoServers.
	AutoServers bool
	// AutoVisible shows each worker the GPUs of all workers on its host if
	// Program expects that, as programs written for torchrun do. The method
	// launch.read then sets VisibleHost.
	AutoVisible bool
	NoBind      bool // do not pin each worker to its own CPU cores
	PortLow     int  // first port on which tasks may listen; 0 means any free port
	PortHigh    int  // last port on which tasks may listen; 0 if PortLow is 0

	WaitGPUs      time.Duration     // how long to wait for GPUs that other processes use; 0 makes the launch fail if a GPU is in use
	StartTimeout  time.Duration     // timeout for starting all tasks, at launch and at each restart; 0 means 5 minutes
	MaxTime       time.Duration     // maximum duration of the job; 0 means no limit
	Hang          protocol.HangPlan // time without progress after which the job counts as hung (0 disables the check), and what plx then does
	FreezeTimeout time.Duration     // time without a heartbeat after which a task of plx's trainer counts as failed; 0 disables the check
	Restarts      Restarts          // how often and how to restart the tasks after failures; the zero value ends the job at the first failure
	Lease         time.Duration     // how long an agent keeps its tasks running without a message from the driver (the process that controls the job); 0 means jobs.DefaultLease
	TLS           bool              // encrypt the traffic between the agents, and between tasks that use plx's trainer
	Grace         time.Duration     // time between asking a task to end and killing it; 0 kills at once
	LogDir        string            // local directory that gets one log file for each output stream of each task; "" writes none
	LogLimit      int64             // number of bytes of each task's output that its host keeps; 0 keeps all
	Metrics       []string          // patterns that extract metrics from the tasks' output (see metrics.ParsePatterns); they add to the built-in patterns
	LogLevel      string            // value of PLX_LOG_LEVEL for the tasks; "" means info
	Grep          *regexp.Regexp    // print only output lines that match; nil prints all lines
	Timestamps    bool              // print the time before each output line
	NoPrefix      bool              // print output lines without the name of their task and host
	Notify        string            // shell command line that this machine runs when the job hangs or ends; "" runs nothing
	JSON          bool              // print job events and the tasks' output as JSON on stdout
	CommandLine   []string          // plx's own command line, for reports; values that look like secrets are redacted
	Version       string            // plx's version, for reports
	KeepDiff      bool              // store with the job the git diff of the program's directory against its commit
	ShowTasks     []string          // patterns of the tasks whose output is printed, such as "worker:*"; empty prints all

	// Resume names an earlier job from whose checkpoints this job starts.
	// Empty starts without them.
	Resume string
	// Fetch is the local directory to which plx copies checkpoints, outputs
	// and logs after the job has ended. Empty leaves these files on the hosts.
	Fetch string
	// CheckpointTimeout is the timeout for the last checkpoint, which the job
	// saves after SIGTERM or a notice that its host will be preempted. 0 saves
	// no last checkpoint.
	CheckpointTimeout time.Duration
}

// DefaultHang is how long a job may show no progress before it counts as hung.
const DefaultHang = 10 * time.Minute

// settle is how long the driver collects failures before it decides which
// task's failure caused the others.
const settle = time.Second

// DefaultSaveTime is the default timeout for saving the last checkpoint before
// the job ends. Clouds seldom give a preempted host more time.
const DefaultSaveTime = time.Minute

// leastLease is the shortest lease that --lease accepts. On a busy host, an
// agent could miss the renewal of a shorter lease and kill its tasks.
const leastLease = 5 * time.Second

// mostPerHost limits the workers per host. The limit is far above what a host
// can run; it stops a typing error from filling the memory with a plan for
// billions of workers.
const mostPerHost = 4096

// leastFreeze is the shortest --freeze-timeout: two heartbeat intervals of a
// task. With a shorter timeout, one late heartbeat would count as a failure.
const leastFreeze = 4 * time.Second

// Check returns the errors that Launch would return before it connects to a
// host. When the user submits a batch script, plx calls Check for the launch
// that will run later. Check also returns the tasks' environment variables as
// NAME=VALUE.
func (c Config) Check() (environ []string, err error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	for flag, paths := range map[string][]string{"workdir": {c.Workdir}, "venv": {c.Venv}, "copy": c.Copy} {
		for _, path := range paths {
			if _, err := os.Stat(path); err != nil && path != "" {
				return nil, exit.Mistake(fmt.Errorf("--%s: %w", flag, err), "--%s must name a file or folder on this machine", flag)
			}
		}
	}
	return c.environ, nil
}

// source returns the fields of the configuration from which package entrypoint
// decides what command the tasks run.
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
	if c.FreezeTimeout > 0 && c.FreezeTimeout < leastFreeze {
		return exit.Mistake(fmt.Errorf("--freeze-timeout %s is too short, at least %s is needed: tasks send a heartbeat every 2s", c.FreezeTimeout, leastFreeze), "--freeze-timeout %s, or 0 for never", leastFreeze)
	}
	if err := c.checkHang(); err != nil {
		return err
	}
	if c.Fetch != "" && c.Detach {
		return exit.Mistake(errors.New("--fetch needs an attached job, and --detach was given"), "plx fetch JOB DIR, once it has ended")
	}
	if c.JSON && (c.Detach || c.DryRun) {
		return exit.Mistake(errors.New("--json prints the events of a running job and excludes --detach and --dry-run"), "plx logs -f --json, plx status --json")
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
	if c.Detach && (c.LogDir != "" || c.Grep != nil || len(c.ShowTasks) > 0) {
		return exit.Mistake(errors.New("--log-dir, --grep, --task and --rank need an attached job, and --detach was given"), "plx logs -f --grep RE")
	}
	if c.ShareGPUs && c.WaitGPUs > 0 {
		return exit.Mistake(errors.New("--share-gpus and --wait-gpus contradict each other: one uses GPUs beside others, the other waits until nobody else does"), "leave one of them out")
	}
	if len(c.Hosts) > 0 { // the host names of an embedded cluster (hosts simulated on this machine) are not known yet
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
		return exit.Mistake(fmt.Errorf("--name %q: a name is up to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit", c.Name), "--name %s", suggestName(c.Name))
	}
	if c.Resume != "" && !jobName().MatchString(c.Resume) {
		return exit.Mistake(fmt.Errorf("--resume %q: not a valid job id or job name", c.Resume), "plx jobs lists both")
	}
	return nil
}

// leastHang is the shortest --hang-timeout. Agents measure the progress of
// tasks once a second, and a busy host may measure late.
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

// variable matches a reference to a variable in a shell command line, such as
// $NAME or ${NAME}.
var variable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?:^|[^\\])\$\{?[#!]?([A-Za-z_][A-Za-z0-9_]*)`) })

// checkSetup rejects a --setup line that uses a variable whose value differs
// between the tasks of a host. With --workdir, that line runs once per host.
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

// checkSigns rejects negative numbers and durations. It also rejects more
// workers per host than mostPerHost.
func (c *Config) checkSigns() error {
	for _, n := range []struct {
		flag  string
		value int64
	}{
		{"-n", int64(c.Workers)}, {"--workers-per-host", int64(c.PerHost)}, {"--grace", int64(c.Grace)},
		{"--max-time", int64(c.MaxTime)}, {"--wait-gpus", int64(c.WaitGPUs)}, {"--start-timeout", int64(c.StartTimeout)}, {"--freeze-timeout", int64(c.FreezeTimeout)}, {"--hang-timeout", int64(c.Hang.Timeout)},
		{"--checkpoint-timeout", int64(c.CheckpointTimeout)}, {"--max-restarts", int64(c.Restarts.Max)},
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
	jobName      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`) })
	invalidChars = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^A-Za-z0-9._-]+`) }) // matches characters that are not allowed in a job name
)

// suggestName returns a valid job name that resembles the invalid name, to
// suggest it in an error message.
func suggestName(name string) string {
	name = strings.TrimLeft(invalidChars().ReplaceAllString(name, "-"), "._-")
	return cmp.Or(strings.TrimRight(name[:min(len(name), 64)], "._-"), "my-job")
}

// Restarts configures how often a job restarts after failures, and how.
type Restarts = protocol.Restarts

// HangPlan configures after how long without progress a job counts as hung,
// and what plx then does.
type HangPlan = protocol.HangPlan
