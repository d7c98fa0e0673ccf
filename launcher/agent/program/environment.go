//go:build linux

// Package program decides what a task executes: the file and its arguments, its
// working folder and its environment, RANK and the rest of the contract included.
// It says in words why a program cannot be executed.
//
//	dir, err := program.WorkingFolder(spec.Command.Chdir, own)
//	env := program.Environment(login, spec, contract, dir)
//	command, err := program.Resolve(spec.Command, env, dir)
//	err = command.Run(func() error { ... execute command.Path ... })
//
// The package starts no process and changes no file.
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

// Descriptors of a task's inherited sockets; 0, 1 and 2 are its streams.
const (
	ListenFD  = 3 // listening, at the task's own address
	ControlFD = 4 // the control channel
)

// defaultPath is the PATH if the login has none.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// AgentEnvironment is the environment of the supervisor: the login's,
// with the marks of the job and its host folder.
func AgentEnvironment(login []string, job, folder string) []string {
	env := Without(login, "PLX_")
	return append(env, process.MarkAgent+"="+job, process.MarkFolder+"="+folder)
}

// LoginOf returns the login's environment from that of an agent.
func LoginOf(agent []string) []string {
	return Without(agent, process.MarkAgent+"=", process.MarkFolder+"=")
}

// StepCores is how many cores of the host the job of Slurm has in whose step this process
// runs; 0 if it runs in none.
func StepCores() int {
	n, err := strconv.Atoi(os.Getenv("SLURM_CPUS_ON_NODE"))
	if err != nil || n < 1 || !cluster.InStep() {
		return 0
	}
	return n
}

// Environment is the environment of a task. Of variables that are set twice the later
// one of this order counts: defaults for PyTorch, the login's variables, the interface that
// the user chose, the user's variables, the contract.
func Environment(login []string, spec protocol.Spec, c cluster.Contract, cwd string) []string {
	env := append(c.Foreign.Defaults(), Without(login, "PLX_", "SSH_", "_=", "OLDPWD=")...)
	if spec.Interface != "" {
		env = append(env, c.Foreign.Interfaces()...)
	}
	for _, e := range spec.Env {
		env = append(env, string(e))
	}
	if level, ok := Lookup(env, "PLX_LOG_LEVEL"); ok { // the login's is gone: it is the user's
		c.LogLevel = level
	}
	env = Without(env, contractNames()...) // a server would take the user's rank for its own
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

// Names of variables for Python.
const (
	pythonPath   = "PYTHONPATH"
	pythonStacks = "PLX_PYTHON_STACKS"
)

// Traceable adds to the environment of a task what makes Python print its stacks into a
// file: a folder with a module that Python imports when it starts.
func Traceable(env []string, folder, file string) []string {
	path := folder
	if users, ok := Lookup(env, pythonPath); ok && users != "" {
		path += ":" + users
	}
	return lastWins(append(env, pythonPath+"="+path, pythonStacks+"="+file))
}

// Plain is the environment of a command that is no task: the login's, then the user's.
// path is put before PATH.
func Plain(login []string, user []protocol.Raw, path, cwd string) []string {
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

// contractNames are the beginnings, up to "=", of all variables of the contract. A server
// lacks some of them, and must not take the login's for its own.
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

// Without returns env without the variables that begin with one of the prefixes.
func Without(env []string, prefixes ...string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(e string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(e, p) })
	})
}

// Lookup returns the value of a variable, the last one if it is set twice.
func Lookup(env []string, name string) (value string, ok bool) {
	for _, e := range slices.Backward(env) {
		if n, v, found := strings.Cut(e, "="); found && n == name {
			return v, true
		}
	}
	return "", false
}

// lastWins keeps the last of equally named variables, because programs that are
// given two use either.
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
