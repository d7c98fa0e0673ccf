package agent

import (
	"strings"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// Variables that mark the agent's own processes and, the second one, tasks
// too; the tasks' own mark is PLX_JOB.
const (
	markAgent  = "PLX_AGENT_JOB"
	markFolder = "PLX_HOST_FOLDER"
	markTask   = "PLX_JOB"
)

// defaultPath serves where the login gives no PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// agentEnviron is the environment of guardian and supervisor: the login's,
// marked.
func agentEnviron(login []string, f folder) []string {
	env := without(login, "PLX_")
	return append(env, markAgent+"="+f.job(), markFolder+"="+f.name())
}

// taskEnviron is the environment of a task: the login's, then the user's,
// then the contract's.
func taskEnviron(login []string, spec protocol.Spec, c cluster.Contract, cwd string) []string {
	env := without(login, "PLX_", "SSH_", "_=", "OLDPWD=")
	for _, e := range spec.Env {
		env = append(env, string(e))
	}
	env = without(env, contractNames...) // a server must not take the user's for its own
	path, ok := lookup(env, "PATH")
	if !ok {
		path = defaultPath
	}
	if spec.Command.Path != "" {
		path = string(spec.Command.Path) + ":" + path
	}
	env = append(env, "PATH="+path, "PWD="+cwd, markFolder+"="+spec.Folder)
	return lastWins(append(env, c.Environ()...))
}

// contractNames begin the variables of plx's own contract.
var contractNames = func() []string {
	var names []string
	full := cluster.Contract{Task: cluster.Chief, ListenFD: listenFD, ControlFD: controlFD, FirstWorldSize: 1}
	for _, e := range full.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "PLX_") {
			names = append(names, name+"=")
		}
	}
	return names
}()

func without(env []string, prefixes ...string) []string {
	var kept []string
	for _, e := range env {
		drop := false
		for _, p := range prefixes {
			drop = drop || strings.HasPrefix(e, p)
		}
		if !drop {
			kept = append(kept, e)
		}
	}
	return kept
}

// lookup returns the value of a variable, the last one where it is set twice.
func lookup(env []string, name string) (value string, ok bool) {
	for _, e := range env {
		if n, v, found := strings.Cut(e, "="); found && n == name {
			value, ok = v, true
		}
	}
	return value, ok
}

// lastWins keeps the last of equally named variables: programs that are given
// two take either.
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
