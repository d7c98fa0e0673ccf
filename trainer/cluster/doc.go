// Package cluster is the contract between a launcher and a task.
//
// A launcher starts every task of a job with environment variables and two
// inherited sockets. This package names them, encodes them for the launcher and
// decodes them for the task. Start with [FromEnvironment] in a task and with
// [Contract.Environ] in a launcher:
//
//	c, ok, err := cluster.FromEnvironment(os.Getenv)
//	if err != nil { ... }
//	if !ok { ... }               // not under a launcher: run on one device
//	ln, err := c.Listener()      // this task's address in c.Cluster, already open
//
// [Contract.Environ] also sets RANK, WORLD_SIZE, TF_CONFIG and the like for programs
// that were written for other launchers.
//
// # Control channel
//
// A task that follows the contract opens its [Control] channel and says hello. Such
// a task is called native. It must say finished before it exits with status 0, and
// send a heartbeat every few seconds: the agent kills a task that is silent for too
// long. A program that never says hello is foreign; only its exit status counts.
//
// Heartbeat, failed and finished name the last step that the task has made, its loss, and the
// step after which its generation began. A generation is one start of all tasks; each
// restart begins another.
//
// # Checkpoints
//
// A relative checkpoint folder lies below [Contract.Checkpoints]. Jobs of one name
// share that folder, so the next job finds what this one has saved.
//
// Before a job ends early, the agent may send the chief, worker 0, a [Checkpoint]. The
// chief answers each with exactly one message of the same kind. An answer with Step
// says that a checkpoint of the state after that step is complete, manifest included.
// That checkpoint was begun after the request, or contains every step made by then. An
// answer with Cause says why there is none; a chief that keeps no checkpoints answers
// so at once.
//
// The chief goes on training while it saves. Stop may come before it has answered; then
// it need not answer. The launcher waits for the answer within bounds and then sends
// stop.
//
// # Peers
//
// Tasks find each other through [Spec]. Before anything else they prove the job's
// secret to each other, see [Dial] and [Accept].
//
// The package imports the standard library only. It knows nothing of hosts, SSH or
// training.
package cluster
