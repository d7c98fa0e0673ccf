package launcher

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/protocol"
)

// Config is one launch. Validate fills the defaults.
type Config struct {
	hosts.Reach
	Terminal console.Terminal

	// Program is a local executable ("./train"), a Go package folder, or the
	// bare name of a command on the hosts' PATH.
	Program string
	Args    []string
	Name    string // the user's name for the job; empty: that of the program

	Env      []string // NAME=VALUE, or NAME for the value of this machine
	EnvFiles []string
	Copy     []string // files and folders for the tasks' working folders
	Chdir    string   // folder on the hosts to run in; empty: the task's own
	Setup    string   // shell line to run before the program; empty: none
	Path     string   // folders to put before the hosts' PATH
	Detach   bool
	DryRun   bool

	environ []string // Env and EnvFiles together; written by validate

	Workers        int      // in the whole job; 0: one per device
	WorkersPerHost int      // 0: one per device
	Servers        []string // hosts that get a server; nil: every host with a worker
	NoServers      bool
	VisibleHost    bool // a worker sees the devices of all workers of its host
	NoBind         bool // do not bind workers to their share of the cores
	PortLow        int  // first port that tasks may serve on; 0: any free port
	PortHigh       int  // last port that tasks may serve on

	StartTimeout time.Duration // until every task has started; 0: 5m
	MaxTime      time.Duration // of the job; 0: no limit
	Freeze       time.Duration // after which a task of the trainer without heartbeats has failed; 0: never
	Restarts     Restarts
	Lease        time.Duration // how long a host runs tasks without hearing the driver; 0: jobs.DefaultLease
	Grace        time.Duration // between asking a task to end and killing it; 0: it is killed at once
	LogDir       string        // folder of this machine for a file per stream of each task; empty: none
	LogLevel     string        // PLX_LOG_LEVEL of the tasks; empty: info
	Grep         *regexp.Regexp

	// Resume names a job with whose checkpoints this one begins. Empty: none.
	Resume string
	// Fetch is the folder of this machine for the checkpoints, after the job has
	// ended. Empty: they stay on the hosts.
	Fetch string
	// SaveTime bounds the checkpoint that a job makes before SIGTERM or a preempted
	// host ends it. 0: it makes none.
	SaveTime time.Duration
}

// settle is how long the driver collects failures before it blames one of them.
const settle = time.Second

// DefaultSaveTime is how long a job may take to save before it ends. Preempted hosts
// seldom leave more time.
const DefaultSaveTime = time.Minute

// leastLease is the shortest lease. A busy host would miss a shorter one.
const leastLease = 5 * time.Second

// leastFreeze is the time of two heartbeats of a task. With less, one late heartbeat
// would count as a failure.
const leastFreeze = 4 * time.Second

func (c *Config) validate() error {
	if c.Program == "" {
		return exit.Mistake(errors.New("no program was named"), "plx launch --hosts resources.txt ./train")
	}
	if c.LogLevel == "" {
		c.LogLevel = "info"
	}
	fill(&c.StartTimeout, 5*time.Minute)
	fill(&c.Lease, jobs.DefaultLease)
	if c.Lease < leastLease {
		return exit.Mistake(fmt.Errorf("--lease %s is too short, at least %s is needed", c.Lease, leastLease), "")
	}
	if err := c.checkSigns(); err != nil {
		return err
	}
	if c.Freeze > 0 && c.Freeze < leastFreeze {
		return exit.Mistake(fmt.Errorf("--freeze-timeout %s is too short, at least %s is needed: tasks send a heartbeat every 2s", c.Freeze, leastFreeze), "")
	}
	if err := c.checkFetch(); err != nil {
		return err
	}
	if err := c.Restarts.validate(); err != nil {
		return err
	}
	if slices.Contains(c.Copy, "") {
		return exit.Mistake(errors.New("--copy: the name is empty"), "an unset shell variable?")
	}
	if c.Detach && (c.LogDir != "" || c.Grep != nil) {
		return exit.Mistake(errors.New("--log-dir and --grep need an attached job, and --detach was given"), "plx logs -f --grep RE")
	}
	var err error
	if c.environ, err = envsync.Environment(c.Env, c.EnvFiles, os.LookupEnv); err != nil {
		return exit.Mistake(err, exit.Hint(err))
	}
	if len(c.Hosts) == 0 {
		fillInt(&c.LocalHosts, 2)
		fillInt(&c.LocalWorkers, 1)
	}
	return checkName(c.Name)
}

// checkSigns refuses negative numbers and times.
func (c *Config) checkSigns() error {
	for _, n := range []struct {
		flag  string
		value int64
	}{
		{"-n", int64(c.Workers)}, {"--workers-per-host", int64(c.WorkersPerHost)}, {"--grace", int64(c.Grace)},
		{"--max-time", int64(c.MaxTime)}, {"--start-timeout", int64(c.StartTimeout)}, {"--freeze-timeout", int64(c.Freeze)},
		{"--checkpoint-timeout", int64(c.SaveTime)},
	} {
		if n.value < 0 {
			return exit.Mistake(fmt.Errorf("%s is negative", n.flag), "")
		}
	}
	return nil
}

func (c *Config) checkFetch() error {
	if c.Fetch != "" && c.Detach {
		return exit.Mistake(errors.New("--fetch needs an attached job, and --detach was given"), "plx fetch JOB DIR, once it has ended")
	}
	return nil
}

func fill(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

func fillInt(n *int, value int) {
	if *n == 0 {
		*n = value
	}
}

var jobName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func checkName(name string) error {
	if name != "" && !jobName.MatchString(name) {
		return exit.Mistake(fmt.Errorf("--name %q: a name is up to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit", name), "")
	}
	return nil
}

// Restarts tells how a job continues after a failure. Its zero value: it ends.
type Restarts struct {
	Max        int           // restarts of the job, at most
	PerHour    int           // restarts within an hour, at most; 0: any number
	MinWorkers int           // a generation needs as many workers; 0: as many as the first had
	WaitHost   time.Duration // for lost hosts to return if fewer workers are left
	Backoff    time.Duration // before the first restart; doubled before each further one
}

func (r Restarts) validate() error {
	for _, n := range []struct {
		flag  string
		value int64
	}{
		{"--max-restarts", int64(r.Max)}, {"--restarts-per-hour", int64(r.PerHour)}, {"--min-workers", int64(r.MinWorkers)},
		{"--wait-host", int64(r.WaitHost)}, {"--restart-backoff", int64(r.Backoff)},
	} {
		if n.value < 0 {
			return exit.Mistake(fmt.Errorf("%s is negative", n.flag), "")
		}
	}
	return nil
}

// fit refuses a MinWorkers that the job does not have.
func (r Restarts) fit(p placement.Placement) error {
	if r.MinWorkers > p.Workers {
		return exit.Mistake(fmt.Errorf("--min-workers %d, the job has %s", r.MinWorkers, console.Count(p.Workers, "worker")), "")
	}
	return nil
}

// plan returns what the job's driver is told. revive tells whether the driver can start
// new agents: it must reach the hosts over SSH.
func (r Restarts) plan(revive bool) protocol.Restarts {
	return protocol.Restarts{Max: r.Max, PerHour: r.PerHour, MinWorkers: r.MinWorkers, WaitHost: r.WaitHost, Backoff: r.Backoff, Revive: revive}
}
