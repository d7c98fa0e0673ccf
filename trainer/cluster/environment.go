package cluster

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Contract is all information that a launcher passes to one task.
type Contract struct {
	Job            string
	Generation     int // number of restarts of the job so far; 0 in the first run
	Task           Task
	WorldSize      int    // number of workers; 0 in a parameter server, like the next three fields
	LocalRank      int    // index of the worker among the workers on its host
	LocalWorldSize int    // number of workers on the worker's host
	FirstWorldSize int    // number of workers when the job first started; settings that must survive a change of hosts are derived from it
	Cluster        Spec   // address of every task, at which it receives data from other tasks
	ListenFD       int    // descriptor of the open listening socket at Cluster.Addr(Task); 0 means none
	ControlFD      int    // descriptor of the task's end of the control channel; 0 means none
	SecretFile     string // path of the file with the job's secret, on the task's host
	TLS            bool   // true if tasks encrypt connections between different hosts
	LogLevel       string
	Dir            string  // folder on the task's host that only this task uses
	Checkpoints    string  // folder to which a relative --ckpt-dir refers; may not exist yet; empty means none
	Foreign        Foreign // variables for programs written for other launchers
}

// Foreign is the information for programs that were written for other
// launchers, such as torchrun.
type Foreign struct {
	MasterAddr string   // MASTER_ADDR: address of the chief's host
	MasterPort int      // MASTER_PORT: a port on the chief's host that the launcher has reserved
	Cluster    Spec     // addresses of all tasks for TF_CONFIG; their ports are reserved, but no socket listens on them yet
	GroupRank  int      // GROUP_RANK: index of the worker's host among the hosts with workers
	Interface  string   // network interface for data between tasks; empty means that it is not known
	Prefix     bool     // true if the host has other interfaces whose names begin with Interface
	Visible    []string // environment variables, as NAME=VALUE, that make only the task's own GPUs visible to it
	Threads    int      // OMP_NUM_THREADS; 0 means that this variable is not set

	Groups      int    // GROUP_WORLD_SIZE: number of hosts with workers
	Restarts    int    // TORCHELASTIC_RESTART_COUNT: number of restarts so far
	MaxRestarts int    // TORCHELASTIC_MAX_RESTARTS: maximum number of restarts of the job
	ErrorFile   string // TORCHELASTIC_ERROR_FILE: file in which the program describes its failure; empty means that this variable is not set
}

// InStep reports whether this process runs in a Slurm job step (srun). Slurm
// sends SIGTERM to all processes of a step at once before it ends the job.
func InStep() bool { return os.Getenv("SLURM_STEP_ID") != "" }

// Notify relays SIGINT and SIGTERM to the channel signals, like signal.Notify.
// A task in a Slurm job step ignores SIGTERM: the agent (the task's parent)
// gets SIGTERM too, has the job save a checkpoint, and then tells the task
// when to end.
func Notify(signals chan<- os.Signal) {
	signal.Notify(signals, os.Interrupt)
	if os.Getenv("PLX_ROLE") != "" && InStep() {
		signals = make(chan os.Signal, 1)
	}
	signal.Notify(signals, syscall.SIGTERM)
}

// Environ returns the contract as NAME=VALUE pairs. The launcher appends them
// to the user's environment variables, so they override the user's.
// [Foreign.Defaults] returns the variables that the user may override.
func (c Contract) Environ() []string {
	cluster, _ := json.Marshal(c.Cluster.lists()) // an error is impossible for strings
	env := []string{
		"PLX_JOB=" + c.Job,
		"PLX_GENERATION=" + strconv.Itoa(c.Generation),
		"PLX_ROLE=" + string(c.Task.Role),
		"PLX_TASK_INDEX=" + strconv.Itoa(c.Task.Index),
		"PLX_CLUSTER=" + string(cluster),
		"PLX_SECRET_FILE=" + c.SecretFile,
		"PLX_LOG_LEVEL=" + c.LogLevel,
		"PLX_DIR=" + c.Dir,
		"PLX_CHECKPOINTS=" + c.Checkpoints,
	}
	if c.TLS {
		env = append(env, "PLX_TLS=1")
	}
	if c.ListenFD > 0 {
		env = append(env, "PLX_LISTEN_FD="+strconv.Itoa(c.ListenFD))
	}
	if c.ControlFD > 0 {
		env = append(env, "PLX_CONTROL_FD="+strconv.Itoa(c.ControlFD))
	}
	if c.Task.Role == Worker {
		env = append(env,
			"PLX_RANK="+strconv.Itoa(c.Task.Index),
			"PLX_WORLD_SIZE="+strconv.Itoa(c.WorldSize),
			"PLX_LOCAL_RANK="+strconv.Itoa(c.LocalRank),
			"PLX_LOCAL_WORLD_SIZE="+strconv.Itoa(c.LocalWorldSize))
		if c.FirstWorldSize > 0 {
			env = append(env, "PLX_FIRST_WORLD_SIZE="+strconv.Itoa(c.FirstWorldSize))
		}
	}
	return append(env, c.foreign()...)
}

// foreign returns the variables that other launchers set, such as RANK and
// WORLD_SIZE for PyTorch and TF_CONFIG for TensorFlow.
func (c Contract) foreign() []string {
	f := c.Foreign
	env := append(slices.Clone(f.Visible), "CUDA_DEVICE_ORDER=PCI_BUS_ID", "TF_CONFIG="+c.tfConfig())
	if c.Task.Role != Worker {
		return env
	}
	return append(env, c.torch()...)
}

func (c Contract) tfConfig() string {
	addresses := c.Foreign.Cluster.lists()
	lists := map[string][]string{"worker": addresses.Worker}
	if len(addresses.PS) > 0 {
		lists["ps"] = addresses.PS
	}
	text, _ := json.Marshal(map[string]any{ // an error is impossible for strings and numbers
		"cluster": lists,
		"task":    map[string]any{"type": string(c.Task.Role), "index": c.Task.Index},
	})
	return string(text)
}

// FromEnvironment reads the contract of the running task; it leaves field
// Foreign empty. ok is false if PLX_ROLE is not set, which means that no
// launcher has started this process. The error lists all variables that are
// missing or contradictory.
func FromEnvironment(getenv func(string) string) (c Contract, ok bool, err error) {
	if getenv("PLX_ROLE") == "" {
		return Contract{}, false, nil
	}
	r := reader{getenv: getenv}
	c = Contract{
		Job:        r.text("PLX_JOB"),
		Generation: r.number("PLX_GENERATION", 0),
		Task:       Task{Role: Role(getenv("PLX_ROLE")), Index: r.number("PLX_TASK_INDEX", 0)},
		ListenFD:   r.optional("PLX_LISTEN_FD", 3),
		ControlFD:  r.optional("PLX_CONTROL_FD", 3),
		SecretFile: r.text("PLX_SECRET_FILE"),
		TLS:        getenv("PLX_TLS") != "",
		LogLevel:   getenv("PLX_LOG_LEVEL"),
		Dir:        getenv("PLX_DIR"),

		Checkpoints: getenv("PLX_CHECKPOINTS"),
	}
	rank := 0
	if c.Task.Role == Worker {
		rank = r.number("PLX_RANK", 0)
		c.WorldSize = r.number("PLX_WORLD_SIZE", 1)
		c.LocalRank = r.number("PLX_LOCAL_RANK", 0)
		c.LocalWorldSize = r.number("PLX_LOCAL_WORLD_SIZE", 1)
		c.FirstWorldSize = cmp.Or(r.optional("PLX_FIRST_WORLD_SIZE", 1), c.WorldSize)
	}
	if err := json.Unmarshal([]byte(getenv("PLX_CLUSTER")), &c.Cluster); err != nil {
		r.failf("PLX_CLUSTER: %w", err)
	}
	if len(r.errs) == 0 { // if there are errors, some fields of c are missing, so the checks of c would report wrong errors
		r.check(c, rank)
	}
	return c, true, errors.Join(r.errs...)
}

// check collects contradictions between variables. rank is the value of
// PLX_RANK.
func (r *reader) check(c Contract, rank int) {
	if c.Task.Role != Worker && c.Task.Role != PS {
		r.failf("PLX_ROLE=%q: want worker or ps", c.Task.Role)
		return
	}
	if c.Cluster.Addr(c.Task) == "" {
		r.failf("PLX_CLUSTER: no address for this task, %s", c.Task)
	}
	if t, ok := c.Cluster.unaddressed(); ok && t != c.Task {
		r.failf("PLX_CLUSTER: no address for %s", t)
	}
	if c.Task.Role != Worker {
		return
	}
	if rank != c.Task.Index {
		r.failf("PLX_RANK=%d, but PLX_TASK_INDEX=%d: a worker's index is its rank", rank, c.Task.Index)
	}
	if c.WorldSize != len(c.Cluster.Worker) {
		r.failf("PLX_WORLD_SIZE=%d, but PLX_CLUSTER lists %d workers", c.WorldSize, len(c.Cluster.Worker))
	}
	if c.LocalWorldSize > c.WorldSize {
		r.failf("PLX_LOCAL_WORLD_SIZE=%d, but PLX_WORLD_SIZE=%d", c.LocalWorldSize, c.WorldSize)
	}
	if c.LocalRank >= c.LocalWorldSize || c.LocalRank > rank {
		r.failf("PLX_LOCAL_RANK=%d, but PLX_LOCAL_WORLD_SIZE=%d and PLX_RANK=%d", c.LocalRank, c.LocalWorldSize, rank)
	}
}

// Listener returns the task's listening socket, which the launcher has opened.
// It marks the descriptor close-on-exec, so that no child of the task keeps
// the port open. Listener may be called only once.
func (c Contract) Listener() (net.Listener, error) {
	f, err := inherited(c.ListenFD, "PLX_LISTEN_FD")
	if err != nil {
		return nil, err
	}
	defer f.Close() // FileListener has duplicated this descriptor
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("PLX_LISTEN_FD=%d: %w", c.ListenFD, err)
	}
	return ln, nil
}

// Secret reads the job's secret from SecretFile, where it is SecretSize bytes
// in hex.
func (c Contract) Secret() ([]byte, error) {
	f, err := os.Open(c.SecretFile)
	if err != nil {
		return nil, fmt.Errorf("read job secret: %w", err)
	}
	defer f.Close()                                                // an error of Close does not matter: the file is only read
	text, err := io.ReadAll(io.LimitReader(f, 2*SecretSize+1<<10)) // the limit is longer than a secret with white space, so a file that exceeds it is invalid
	if err != nil {
		return nil, fmt.Errorf("read job secret: %w", err)
	}
	secret, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(secret) != SecretSize {
		return nil, fmt.Errorf("job secret %s: want %d bytes in hex", c.SecretFile, SecretSize)
	}
	return secret, nil
}

// reader reads environment variables and collects all errors, so that the user
// sees them together.
type reader struct {
	getenv func(string) string
	errs   []error // errors of the variables read so far
}

func (r *reader) failf(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf(format, args...))
}

func (r *reader) text(name string) string {
	value := r.getenv(name)
	if value == "" {
		r.failf("%s is not set", name)
	}
	return value
}

func (r *reader) number(name string, least int) int {
	n, err := strconv.Atoi(r.getenv(name))
	if err != nil || n < least {
		r.failf("%s=%q: want a number of at least %d", name, r.getenv(name), least)
	}
	return n
}

func (r *reader) optional(name string, least int) int {
	if r.getenv(name) == "" {
		return 0
	}
	return r.number(name, least)
}
