package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/hostfile"
)

// Terminal is where plx writes and what stands there.
type Terminal struct {
	// Stdout is the program's: it carries the tasks' stdout, or a command's
	// result. Stderr carries the tasks' stderr and plx's own words.
	Stdout, Stderr io.Writer
	// StdoutTTY and StderrTTY say which of them is a terminal.
	StdoutTTY, StderrTTY bool
	// StdoutColour and StderrColour say where colour is wanted.
	StdoutColour, StderrColour bool
}

// Reach says which hosts are meant and how they are reached.
type Reach struct {
	// Hosts come from the resource file. Empty: an embedded cluster.
	Hosts []hostfile.Host
	// Local is the size of the embedded cluster: hosts x workers of each.
	LocalHosts, LocalWorkers int
	// AcceptNewHostKeys records the key of a host of which none is known.
	AcceptNewHostKeys bool
}

// Config is one launch. Validate fills the defaults.
type Config struct {
	Reach
	Terminal Terminal

	// Program is a local executable ("./train"), a Go package folder, or the
	// bare name of a command on the hosts' PATH.
	Program string
	Args    []string
	Name    string // the user's name for the job; "" for the program's

	Env      []string // NAME=VALUE, or NAME for the value of this machine
	EnvFiles []string
	Copy     []string // files and folders for the tasks' working folders
	Chdir    string
	Setup    string
	Path     string
	Detach   bool
	DryRun   bool

	environ []string // what Env and EnvFiles come to

	Workers        int // -n; 0: one per device
	WorkersPerHost int
	Servers        []string // --ps host,host; nil: every host
	NoServers      bool     // --ps none
	VisibleHost    bool     // --visible host
	NoBind         bool
	PortLow        int
	PortHigh       int

	StartTimeout time.Duration // 5m: until every task has started
	MaxTime      time.Duration // 0: no end
	Freeze       time.Duration // a task of the trainer's without heartbeats for as long has failed; 0: never
	Restarts     Restarts
	Lease        time.Duration // 30s
	Grace        time.Duration // see DefaultGrace; 0 kills at once
	LogDir       string
	LogLevel     string
	Grep         *regexp.Regexp

	// Resume names a job whose checkpoints this one goes on from.
	Resume string
	// Fetch is the folder of this machine that takes the checkpoints at the
	// end. "": they stay on the hosts.
	Fetch string
	// SaveTime bounds the save that comes before the end of a job that SIGTERM
	// or the loss of a host ends. 0: none is made.
	SaveTime time.Duration
}

// settle is how long failures are collected before one is blamed.
const settle = time.Second

// DefaultGrace is the time between asking a task to end and killing it.
const DefaultGrace = 10 * time.Second

// DefaultSaveTime is how long a job that is to end may take to save: hosts
// that are taken away seldom leave more.
const DefaultSaveTime = time.Minute

// Limits of the lease: shorter than the least, a busy host would miss it.
const (
	leastLease   = 5 * time.Second
	defaultLease = 30 * time.Second
)

// leastFreeze is two heartbeats of a task: with less, one that comes a moment
// late would be its end.
const leastFreeze = 4 * time.Second

func (c *Config) validate() error {
	if c.Program == "" {
		return Mistake(errors.New("no program was named"), "plx launch --hosts resources.txt ./train")
	}
	if c.LogLevel == "" {
		c.LogLevel = "info"
	}
	fill(&c.StartTimeout, 5*time.Minute)
	fill(&c.Lease, defaultLease)
	if c.Lease < leastLease {
		return Mistake(fmt.Errorf("--lease %s is too short, at least %s is needed", c.Lease, leastLease), "")
	}
	if err := c.checkSigns(); err != nil {
		return err
	}
	if c.Freeze > 0 && c.Freeze < leastFreeze {
		return Mistake(fmt.Errorf("--freeze-timeout %s is too short, at least %s is needed: tasks show that they live every 2s", c.Freeze, leastFreeze), "")
	}
	if err := c.checkFetch(); err != nil {
		return err
	}
	if err := c.Restarts.validate(); err != nil {
		return err
	}
	if slices.Contains(c.Copy, "") {
		return Mistake(errors.New("--copy: the name is empty"), "an unset shell variable?")
	}
	if c.Detach && (c.LogDir != "" || c.Grep != nil) {
		return Mistake(errors.New("--log-dir and --grep show what an attached job prints, and this one is to be detached"), "plx logs -f --grep RE")
	}
	var err error
	if c.environ, err = envsync.Environment(c.Env, c.EnvFiles, os.LookupEnv); err != nil {
		return Mistake(err, Hint(err))
	}
	if len(c.Hosts) == 0 {
		fillInt(&c.LocalHosts, 2)
		fillInt(&c.LocalWorkers, 1)
	}
	return checkName(c.Name)
}

// checkSigns refuses numbers and times below zero.
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
			return Mistake(fmt.Errorf("%s is negative", n.flag), "")
		}
	}
	return nil
}

func (c *Config) checkFetch() error {
	if c.Fetch != "" && c.Detach {
		return Mistake(errors.New("--fetch is done at the end of an attached job, and this one is to be detached"), "plx fetch JOB DIR, once it has ended")
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
		return Mistake(fmt.Errorf("--name %q: a name is up to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit", name), "")
	}
	return nil
}
