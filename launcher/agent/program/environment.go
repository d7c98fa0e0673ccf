//go:build linux

// Package program determines what a task executes: the executable file, the
// arguments, the working folder and the environment. The environment includes
// the variables that plx defines for tasks, such as RANK. If a program cannot
// be executed, the package returns an error that explains the reason.
//
//	dir, err := program.WorkingFolder(spec.Command.Chdir, own)
//	env := program.Environment(login, spec, contract, dir)
//	command, err := program.Resolve(spec.Command, env, dir)
//	err = command.Run(func() error { ... execute command.Path ... })
//
// The package starts no process itself and changes no file, except two unnamed
// temporary files for --setup.
package program

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// Descriptors of the sockets that a task inherits. Descriptors 0, 1 and 2 are
// its standard streams.
const (
	ListenFD  = 3 // listening socket at the task's own address
	ControlFD = 4 // socket of the control channel between the task and the agent
)

// defaultPath is the PATH of tasks if the environment of the user's login has
// no PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// AgentEnvironment returns the environment of the supervisor (the agent
// process that runs the tasks). It adds variables that name the job and its
// folder on this host to the environment of the user's login.
func AgentEnvironment(login []string, job, folder string) []string {
	env := Without(login, "PLX_")
	return append(env, process.MarkAgent+"="+job, process.MarkFolder+"="+folder)
}

// LoginOf returns the environment of the user's login, given that of an agent:
// it removes the variables that AgentEnvironment adds.
func LoginOf(agent []string) []string {
	return Without(agent, process.MarkAgent+"=", process.MarkFolder+"=")
}

// SlurmCores returns the number of CPU cores that Slurm has allocated to the
// job on this host; 0 if this process runs outside of a Slurm job step.
func SlurmCores() int {
	n, err := strconv.Atoi(os.Getenv("SLURM_CPUS_ON_NODE"))
	if err != nil || n < 1 || !cluster.InStep() {
		return 0
	}
	return n
}

// Environment returns the environment of a task. It joins these sources, of
// which a later one overrides an earlier one: defaults for PyTorch, the
// environment of the user's login, the network interface that the user has
// chosen, the variables that the user has set for the job, and the variables
// that plx defines for tasks.
func Environment(login []string, spec protocol.Spec, c cluster.Contract, cwd string) []string {
	env := append(c.Foreign.Defaults(), Without(login, "PLX_", "SSH_", "_=", "OLDPWD=")...)
	if spec.Interface != "" {
		env = append(env, c.Foreign.Interfaces()...)
	}
	for _, e := range spec.Env {
		env = append(env, string(e))
	}
	// This is the level that the user has set for the job. A level in the
	// login environment does not count: Without has removed the login's
	// variables that begin with PLX_.
	if level, ok := Lookup(env, "PLX_LOG_LEVEL"); ok {
		c.LogLevel = level
	}
	// plx defines no RANK for a parameter server. Remove the user's value, so
	// that a parameter server never gets it.
	env = Without(env, contractNames()...)
	path, ok := Lookup(env, "PATH")
	if !ok {
		path = defaultPath
	}
	if spec.Command.Path != "" {
		path = string(spec.Command.Path) + ":" + path
	}
	env = append(env, "PATH="+path, "PWD="+cwd, process.MarkFolder+"="+spec.Folder)
	return lastWins(append(env, c.Environ()...))
}

const (
	pythonPath   = "PYTHONPATH"
	pythonStacks = "PLX_PYTHON_STACKS"
)

// WithPythonStacks adds two variables to the environment of a task, so that Python
// can print its stack traces into file. folder contains a module that Python
// imports when it starts.
func WithPythonStacks(env []string, folder, file string) []string {
	path := folder
	if users, ok := Lookup(env, pythonPath); ok && users != "" {
		path += ":" + users
	}
	return lastWins(append(env, pythonPath+"="+path, pythonStacks+"="+file))
}

// CommandEnvironment returns the environment of a command that is not a task:
// the environment of the user's login, overridden by the variables in user.
// path is put before PATH.
func CommandEnvironment(login []string, user []protocol.Raw, path, cwd string) []string {
	env := Without(login, "_=", "OLDPWD=")
	for _, e := range user {
		env = append(env, string(e))
	}
	before, ok := Lookup(env, "PATH")
	if !ok {
		before = defaultPath
	}
	if path != "" {
		before = path + ":" + before
	}
	return lastWins(append(env, "PATH="+before, "PWD="+cwd))
}

// contractNames returns the prefixes "NAME=" of all variables that plx defines
// for tasks. A parameter server does not get all of these variables, so plx
// must remove the values that the login or the user has set for them.
var contractNames = sync.OnceValue(func() []string {
	var names []string
	full := cluster.Contract{Task: cluster.Chief, ListenFD: ListenFD, ControlFD: ControlFD, FirstWorldSize: 1,
		Foreign: cluster.Foreign{ErrorFile: "set"}}
	for _, e := range full.Environ() {
		name, _, _ := strings.Cut(e, "=")
		names = append(names, name+"=")
	}
	return names
})

// Without returns env without the variables that begin with one of the
// prefixes, such as "PLX_" or "PATH=".
func Without(env []string, prefixes ...string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(e string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(e, p) })
	})
}

// Lookup returns the value of a variable in env. If the variable is set twice,
// the last value counts.
func Lookup(env []string, name string) (value string, ok bool) {
	for _, e := range slices.Backward(env) {
		if n, v, found := strings.Cut(e, "="); found && n == name {
			return v, true
		}
	}
	return "", false
}

// lastWins keeps only the last definition of each variable. If a variable is
// defined twice, some programs use the first definition and others the last.
func lastWins(env []string) []string {
	at := map[string]int{}
	var kept []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if i, ok := at[name]; ok {
			kept[i] = e
			continue
		}
		at[name] = len(kept)
		kept = append(kept, e)
	}
	return kept
}
