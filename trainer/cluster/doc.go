// Package cluster is the contract between a launcher and a task.
//
// A launcher starts every task of a job with a few environment variables and
// two inherited sockets. This package names them, encodes them for the
// launcher and decodes them for the task. Start with [FromEnvironment] in a
// task and with [Contract.Environ] in a launcher:
//
//	c, ok, err := cluster.FromEnvironment(os.Getenv)
//	if err != nil { ... }
//	if !ok { ... }               // not under a launcher: run on one device
//	ln, err := c.Listener()      // this task's address in c.Cluster, already open
//
// # Control channel
//
// A task that speaks the contract opens its [Control] channel and says hello;
// from then on it must say finished before it exits with 0, and send a
// heartbeat every few seconds: one that is silent for long has frozen, and is
// killed. A program that never says hello is foreign and is judged by its exit
// status alone.
//
// # Steps
//
// Heartbeats, failed and finished tell how far a task is, see [ControlMessage]. A
// task that is told to end, or to give a generation up, says so a last time before
// it does: whoever counts what a restart loses has no other source.
//
// # Generations
//
// A process whose hello says so can be a task of one generation after the other.
// Asked to [Regroup] it ends its part in the present one, closes all that belongs
// to it, says [Waiting], and stays. [Begin] brings what a new process would find
// in its environment, its working folder, and its listening socket; or else stop
// comes. Such a process that has lost a peer need not exit: it says failed, with
// the peer and that it keeps its process, and waits to be asked to regroup, or to
// stop.
//
// # Checkpoints
//
// A relative folder of checkpoints lies below [Contract.Checkpoints], which
// jobs of one name share, so that the next one finds what this one has saved.
// Before a job ends early its agent may ask the chief, and no other task, for a
// [Checkpoint]. The chief answers each such message with exactly one of the
// same kind, once it is decided: with Step when a checkpoint of the state after
// that many steps is complete, its manifest written, which was begun after the
// question or holds all steps that were made by then; with Cause when there is
// none. It answers at once where it keeps no checkpoints, and it goes on
// training and hearing while it saves: stop may come before the answer, and
// then none is wanted. The launcher waits a bounded time and then ends the job
// as ever, with stop.
//
// # Peers
//
// Tasks find each other through [Spec] and prove the job's secret to each
// other before anything else, see [Dial] and [Accept].
//
// The package imports the standard library only and knows nothing of hosts,
// SSH or training.
package cluster
