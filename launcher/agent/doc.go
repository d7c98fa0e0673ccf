// Package agent is what runs on a host: it owns the tasks of one job there.
//
// The launcher starts the plx binary as "plx agent start" over SSH. That
// process makes the job's folder, starts the agent proper and from then on
// only relays its standard input and output to the agent's local socket:
//
//	plx agent start          speaks package protocol; ends with its connection
//	plx agent guardian       own session; outlives the connection
//	  plx agent supervisor   owns tasks, spools, sockets and the lease
//	    ps:0, worker:0, ...  own sessions
//
// Guardian and supervisor are both reapers of orphans (child subreapers), and
// each sees the other die. Whichever is killed, the other ends every process
// of the job on this host: all descendants are stopped, killed by pidfd, and
// listed again until there are none. A host whose conductor is not heard for
// the lease ends its part in the same way.
//
// The other subcommands are short-lived: connect (relay to a running agent),
// logs (serve the spools), claim (is a name of checkpoints free), fetch (serve
// checkpoints), state, jobs, reap (kill what an agent left) and prune (remove
// old jobs and blobs).
//
//	os.Exit(agent.Main(ctx, os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
//
// The package knows no host but its own and decides nothing about the job: it
// reports facts, and a conductor decides. It never signals a process by name,
// nor one that it has not found to be its descendant or marked with the job.
// It runs on Linux; elsewhere Main only says so.
package agent

import "time"

// Reaped is what "agent reap" prints, as JSON.
type Reaped struct {
	Killed     int   `json:"killed"`
	Unkillable []int `json:"unkillable,omitempty"` // pids that outlived SIGKILL
}

// Pruned is a line of what "agent prune" prints, as JSON: something under
// ~/.plx that was removed, and its size.
type Pruned struct {
	Path  string `json:"path"` // relative to ~/.plx
	Bytes int64  `json:"bytes"`
}

// Wanted is what "agent fetch" reads, as a line of JSON.
type Wanted struct {
	Name string `json:"name"`           // under ~/.plx/ckpt
	File string `json:"file,omitempty"` // below that, with slashes; "": the list of all checkpoints
}

// Kept is a line of the list that "agent fetch" prints, as JSON: a folder that
// holds the manifest of a checkpoint.
type Kept struct {
	Folder string     `json:"folder"`           // below ~/.plx/ckpt/<name>, with slashes
	Made   time.Time  `json:"made,omitzero"`    // as the manifest says
	Files  []KeptFile `json:"files,omitempty"`  // what the manifest lists, and itself as the last
	Damage string     `json:"damage,omitempty"` // why the manifest says nothing
}

// KeptFile is one file of a checkpoint.
type KeptFile struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	Sum  string `json:"sum"`            // SHA-256, hexadecimal
	Here bool   `json:"here,omitempty"` // this host has a file of the name and size
}

// Exit statuses of the subcommands.
const (
	codeFailed  = 1 // the reason is one line on standard error
	codeUsage   = 2
	codeNoAgent = 3 // connect: no agent of the job runs here
	codeLeft    = 4 // connect, start: the agent was still there after its stream had ended
	codeTaken   = 5 // claim, start: a running job keeps its checkpoints under the name
)
